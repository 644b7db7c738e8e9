/* What the audit of Python takes a value to be, a few lines of text at a time: which of them it reports. */
#include "support/source_text.h"

/* The lines of a.py that have findings, " 4 7"; `more`: text of a second file, b.py, or NULL. */
static const char *lines_of(const char *text, const char *more, char *lines, size_t size) {
    ist_audit_source s = {0};
    size_t n = 0;
    source_add(&s, "a.py", text, strlen(text));
    if (more) source_add(&s, "b.py", more, strlen(more));
    cr_assert_eq(ist_audit_source_finish(&s, "a", NULL), IST_OK);
    *lines = '\0';
    for (int line = 1; line < 64; line++)
        for (size_t k = 0; k < s.report.finding_count; k++) {
            const ist_audit_site *site = &s.log.sites[s.report.findings[k].site];
            if (site->line == line && !strcmp(site->file, "a.py") && n < size)
                n += (size_t)snprintf(lines + n, size - n, " %d", line);
        }
    ist_audit_source_free(&s);
    return lines;
}

static void expect_lines(const char *text, const char *more, const char *expected) {
    char lines[256];
    cr_expect_str_eq(lines_of(text, more, lines, sizeof lines), expected, "lines%s, not%s, in:\n%s", lines, expected,
                     text);
}

/* A number that means a function for one kind of value and a class for another stays with its kind. */
Test(values, functions_and_classes_among_others) {
    static const char functions[] = "import torch\nx = torch.zeros(1)\n"
                                    "def f(y): return y.cuda()\ndef g(y): return y\ndef h(y): return y\n";
    static const char *const uses[] = {
        "a = [x, f][0]\na['k'] = 3\n",
        "a = {'k': x, 'l': h}\na['m']['n'] = h\n",
        "a = h if x else x\na.b = x\na[0].c[1] = x\n",
        "def k(y): k[y]['a'] = h[y]['b']['c']\n", /* a name that a local variable hides, for Python */
        "def k(v: torch.Tensor = None): return v['a']['b']\nk(h)\nk(x)\n",
        "class C:\n    d = [h, x]\n    def m(self): self.d[0]['e'] = self.d\n"};
    for (size_t k = 0; k < sizeof uses / sizeof *uses; k++) {
        char text[512];
        snprintf(text, sizeof text, "%s%s", functions, uses[k]);
        expect_lines(text, NULL, " 3");
    }
    expect_lines(
        "import torch\ndef f(y):\n    return y.cpu()\ndef step(y):\n    z = [f, f][0](y)\n    return z.cuda()\n", NULL,
        " 3"); /* a chain through a function in a list */
}

#define STEP "import torch\ndef step(model, x, small):\n    y = model(x)\n"

Test(values, branches_that_may_not_be_taken) {
    expect_lines(STEP "    if small:\n        y = y.cpu()\n    return y.cpu()\n", NULL, " 5 6");
    expect_lines(STEP "    if y.is_cuda:\n        y = y.cpu()\n    return y.cpu()\n", NULL, " 5");
    expect_lines(STEP
                 "    if small:\n        y = y.cpu()\n    elif x.is_cuda:\n        y = y + 1\n    return y.cpu()\n",
                 NULL, " 5 8");
    expect_lines(STEP "    if small:\n        y = y * 2\n    else:\n        y = y.cpu()\n    return y.cpu()\n", NULL,
                 " 7 8");
    expect_lines(STEP "    if small:\n        y = y.cpu()\n    else:\n        y = y.to('cpu')\n    return y.cpu()\n",
                 NULL, " 5 7");
    /* behind a branch that ends, what it made is not there */
    expect_lines(STEP "    if small:\n        y = torch.zeros(3)\n        return y\n    return y.cpu()\n", NULL, " 7");
    expect_lines(STEP "    if small:\n        y = torch.zeros(3)\n        raise y\n    else:\n        z = y\n"
                      "    return z.cpu(), y.cpu()\n",
                 NULL, " 9");
    expect_lines(STEP "    for k in x:\n        if k:\n            y = torch.zeros(3)\n            continue\n"
                      "        y.cpu()\n",
                 NULL, " 8");
}

Test(values, a_tensor_on_one_side_of_else_only) {
    static const char turn[] = "import numpy as np\nimport torch\ndef turn(x):\n"
                               "    return x.clone() if isinstance(x, torch.Tensor) else np.array(x)\n";
    char text[512];
    snprintf(text, sizeof text,
             "%sdef step(model, x):\n    y = turn(model(x))\n    if turn(x.numpy()).max() > 1:\n"
             "        return y.cpu()\n",
             turn);
    expect_lines(text, NULL, " 8");
}

Test(values, types_say_where_tensors_are) {
    expect_lines(STEP "    a = torch.zeros(3).type(y.type())\n    b = torch.zeros(3).type_as(y)\n"
                      "    c = torch.zeros(3).type(torch.float16)\n    d = torch.zeros(3).type(torch.zeros(2).type())\n"
                      "    return a.cpu(), b.cpu(), c.cpu(), d.cpu()\n",
                 NULL, " 4 5 8");
    expect_lines("import torch\ndef step(h):\n    t = torch.cuda.HalfTensor if h else torch.cuda.FloatTensor\n"
                 "    a = torch.ones(3).type(t)\n    b = torch.ones(3).type('torch.cuda.FloatTensor')\n"
                 "    c = torch.FloatTensor([1]).item()\n    return a.item(), b.item(), c\n",
                 NULL, " 4 5 7");
    expect_lines("import torch\ndef step(h):\n    a = torch.cuda.FloatTensor([h, h])\n"
                 "    b = torch.cuda.FloatTensor(3, 4)\n    return a[0].item()\n",
                 NULL, " 3 5");
}

Test(values, masks_stay_masks) {
    expect_lines(STEP
                 "    m = torch.cat([y > 0, y > 1])\n    n = torch.stack([y.bool(), torch.zeros(3).bool().cuda()])\n"
                 "    k = torch.cat([y, y])\n    s = (y > 0).long()\n"
                 "    a = x[m]\n    b = x[n]\n    c = x[k]\n    return x[s]\n",
                 NULL, " 5 8 9");
}

Test(values, devices_by_default_and_by_key) {
    static const char f[] = "import torch\ndef load(net, device='cuda'):\n    return net.to(device=device)\n";
    expect_lines(f, "from a import load\nload(3, device='cpu')\n", " 3");
    expect_lines("import torch\ndef load(net, device='cpu'):\n    return net.to(device=device)\n",
                 "from a import load\nload(torch.zeros(1), device='cpu')\n", " 3"); /* a choice */
    expect_lines("import torch\ndef load(net, device):\n    return net.to(device=device)\n",
                 "from a import load\nload(3, device='cpu')\n", " 3"); /* a download */
    expect_lines("import torch\ndef step(state, x):\n    y = torch.as_tensor(x)\n    z = y.to(state['dtype'])\n"
                 "    return y.to(state['device']), z\n",
                 NULL, " 5");
}

/* Arguments up to the twentieth are followed. */
Test(values, many_arguments) {
    expect_lines("import torch\ndef f(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t):\n"
                 "    return t.numpy(), s.cpu()\n"
                 "def step(model, x):\n    y = model(x)\n    z = torch.zeros(3)\n"
                 "    return f(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, z, z)\n"
                 "def step_too(model, x):\n    y = model(x)\n    z = torch.zeros(3)\n"
                 "    return g(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, y, z)\n"
                 "def g(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t):\n"
                 "    return t.cpu(), s.cpu()\n",
                 NULL, " 13");
}

/* Fields of what a model is given are where the model is. */
Test(values, fields_of_what_a_model_is_given) {
    expect_lines("import torch\nfrom torch import nn\nfrom b import Batch\nclass Net(nn.Module):\n"
                 "    def forward(self, batch: Batch):\n        return batch.masks.cpu()\n"
                 "def save(batch: Batch):\n    return batch.masks.cpu()\n",
                 "import torch\nfrom dataclasses import dataclass\n@dataclass\nclass Batch:\n    masks: int\n"
                 "def collate(data):\n    return Batch(masks=torch.stack([torch.zeros(1)]))\n",
                 " 6");
}

Test(values, what_a_data_loader_gives_is_in_host_memory) {
    expect_lines("import torch\ndef evaluate(model, loader, bar):\n    for k, (x, n) in enumerate(bar(loader)):\n"
                 "        y = model(x.cuda())\n        print(n.item(), n[0].item())\n    return y.item()\n",
                 NULL, " 4 6");
    expect_lines("import torch\ndef evaluate(model, data_loader):\n    for n in data_loader.frames:\n"
                 "        print(n.item())\n",
                 NULL, " 4"); /* no loader, but something of it */
}

Test(values, what_goes_to_a_device_is_no_plain_value) {
    expect_lines("import torch\ndef step(device, reader):\n    batch = {'x': 3, 'n': float(reader)}\n"
                 "    return batch['x'].to(device), batch.cuda()\n",
                 NULL, " 4");
    expect_lines("import torch\nclass C:\n    def __init__(self):\n        self.a, self.b = {}, None\n"
                 "    def step(self, device):\n        return self.a['x'].to(device), self.b.cuda()\n",
                 NULL, " 6"); /* there must be something by then */
}

/* None and empty containers give way to what takes their place, also in subscripts of attributes. */
Test(values, nothing_gives_way) {
    expect_lines("import torch\nclass C:\n    def __init__(self, model):\n        self.model = model\n"
                 "        self.kept, self.y = {}, None\n"
                 "    def step(self, x):\n        self.kept[3] = self.model(x)\n        self.y = self.model(x) + 1\n"
                 "        return 3\n"
                 "    def show(self):\n        print(self.kept[3].numpy().max(), self.y)\n"
                 "        return self.kept[3].tolist()\n",
                 NULL, " 11 12");
}

Test(values, parts_of_results_that_later_text_defines) {
    expect_lines(
        "import torch\ndef step(model, x):\n    m, n = pick(model(x))\n    return x[m]\n"
        "def pick(y):\n    m, n = inner(y)\n    return torch.squeeze(m), n\ndef inner(y):\n    return y > 0, y * 2\n",
        NULL, " 4");
}

Test(values, arrays_stay_arrays) {
    expect_lines("import numpy as np\nimport torch\ndef turn(x):\n    if isinstance(x, np.ndarray):\n"
                 "        z = x.copy()\n    elif isinstance(x, torch.Tensor):\n        z = x.clone()\n    return z\n"
                 "def step(model, x, scale):\n    y = turn(model(x))\n    z = x.numpy()\n    z /= scale\n"
                 "    y.cpu()\n    return np.asarray(turn(z))\n",
                 NULL, " 13");
    expect_lines("import torch\ndef step(model, x, more):\n    n = 0\n    n += model(x)\n    return n.tolist()\n", NULL,
                 " 5"); /* a number is replaced */
}

/* What is on a device already goes there for nothing, unless it is another one, or the host. */
Test(values, devices_that_may_be_another) {
    expect_lines("import torch\ndef step(x, device, storage_device):\n    y = x.cuda()\n"
                 "    return y.to(device), torch.zeros_like(y).to(y.device), y.to(storage_device)\n",
                 NULL, " 3 4");
    expect_lines("import torch\ndef step(x, device):\n    y = x.cuda()\n    z = y.to(device)\n"
                 "    return torch.zeros_like(y).to(y.device)\n",
                 NULL, " 3");
    expect_lines("import torch\nclass C:\n    def __init__(self, offload):\n"
                 "        self.place = torch.device('cpu' if offload else 'cpu')\n"
                 "        self.place = torch.device('cuda')\n"
                 "    def step(self, x):\n        y = x.cuda()\n        return y.to(self.place)\n",
                 NULL, " 7 8");
    expect_lines("import torch\ndef step(x, device, offload):\n    y = torch.zeros(3)\n    if offload:\n"
                 "        y = y.cuda()\n    return y.to(device)\n",
                 NULL, " 5 6");
}

Test(values, narrowed_by_conditions) {
    static const char f[] = "import numpy as np\nimport torch\ndef step(model, x, device):\n    y = model(x)\n";
    char text[512];
    snprintf(text, sizeof text, "%s%s", f,
             "    if isinstance(y, np.ndarray):\n        y = torch.as_tensor(y, device=device)\n"
             "    return y.tolist()\n");
    expect_lines(text, NULL, " 6 7");
    snprintf(text, sizeof text, "%s%s", f,
             "    if isinstance(y, np.ndarray):\n        z = np.asarray(y)\n"
             "    return y.tolist()\n");
    expect_lines(text, NULL, " 7");
    snprintf(text, sizeof text, "%s%s", f,
             "    if isinstance(y, torch.Tensor):\n        y = y.cpu().numpy()\n"
             "    return y.tolist()\n");
    expect_lines(text, NULL, " 6");
    snprintf(text, sizeof text, "%s%s", f, "    z = 3 if isinstance(y, np.ndarray) else np.asarray(y)\n    return z\n");
    expect_lines(text, NULL, " 5");
}

/* What callers give as None only, others give as something; arrays given to a model stay arrays. */
Test(values, parameters_of_whatever_is_not_called_here) {
    expect_lines("import torch\ndef f(s):\n    return s.item()\nf(None)\n", NULL, " 3");
    expect_lines("import numpy as np\nimport torch\nfrom torch import nn\nclass Net(nn.Module):\n"
                 "    def forward(self, x, box):\n        return torch.as_tensor(box, device=x.device)\n"
                 "def step(x):\n    return Net()(x, np.zeros(4))\n",
                 NULL, " 6");
    expect_lines("import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
                 "    def embed(self, image: torch.Tensor):\n        x = self.preprocess(image)\n"
                 "        y = self.first(image)\n        return x.to(self.device), y.to(self.device)\n",
                 NULL, " 7");
    expect_lines("import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
                 "    def embed(self, image: torch.Tensor):\n        y = self.first(image) + 0\n"
                 "        y = torch.relu(y)\n        return y.to(self.device)\n",
                 NULL, "");
}

Test(values, models_move_with_their_weights) {
    expect_lines("import torch\ndef save(model):\n    model.cpu()\n    model = model.to('cpu')\n    return model\n",
                 NULL, " 3 4");
    expect_lines("import torch\ndef step(device):\n    return torch.tensor([], device=device), torch.tensor([1.0], "
                 "device=device)\n",
                 NULL, " 3");
    expect_lines("import torch\ndef step(device):\n    return torch.tensor([], device=device)\n", NULL, "");
}

/* What a data loader gave may have been moved in place. */
Test(values, loaded_data_that_is_moved_in_place) {
    expect_lines("import torch\ndef train(model, loader, move):\n    for batch in loader:\n        move(batch)\n"
                 "        x = batch.x.cpu()\n        n = torch.nonzero(batch.y)\n        print(batch.n.item())\n",
                 NULL, " 5 6");
}

/* self.head(x), self.model.post(y): what attributes hold is called. */
Test(values, calls_of_what_attributes_hold) {
    static const char post[] = "import torch\nfrom torch import nn\nclass Post(nn.Module):\n"
                               "    def forward(self, x):\n        return [{'score': s, 'name': 3} for s in x]\n"
                               "def keep(x):\n    return x > 0.5\n";
    expect_lines(
        "import numpy as np\nimport torch\nfrom b import Post, keep\nclass Model:\n    def __init__(self, net):\n"
        "        self.post, self.keep = Post(), keep\nclass Detector:\n    def __init__(self, net):\n"
        "        self.model = Model(net)\n    def detect(self, x):\n        found = self.model.post(x)\n"
        "        scores = found[0]['score']\n        chosen = self.model.keep(scores)\n"
        "        return scores[chosen], found[0]['name']\n",
        post, " 14");
}

Test(values, annotated_dictionaries_hold_their_values) {
    expect_lines("from typing import Any, Dict\nimport numpy as np\nimport torch\ndef f(found: Dict[int, Any]):\n"
                 "    for k, v in found.items():\n        print(v['x'].tolist())\n"
                 "def g(found: Dict[int, torch.Tensor]):\n    return found[3].tolist()\n"
                 "def h(found: Dict[int, float]):\n    return found[3].tolist()\n"
                 "def step(model, x):\n    return f({3: {'x': model(x)}})\n",
                 NULL, " 6 8");
}

/* Made where a default says: on the host when the call does not tell. */
Test(values, made_on_the_device_of_a_default) {
    expect_lines(
        "import torch\ndef grid(n, device=torch.device('cpu')):\n    return torch.linspace(0, 1, n, device=device)\n"
        "def step(x):\n    y = x.cuda()\n    a = grid(3, device=y.device)\n"
        "    return grid(4).to(y.device), torch.zeros_like(a).to(a.device)\n",
        NULL, " 5 7");
    expect_lines("import torch\ndef step(a):\n    return torch.ones_like(a).to(a.device)\n", NULL, "");
}

Test(values, to_where_another_tensor_is) {
    expect_lines("import numpy as np\nimport torch\ndef step(img, labels, weight_dtype, path):\n"
                 "    a = torch.from_numpy(np.zeros(3)).to(img)\n    b = torch.zeros(3).to(labels)\n"
                 "    c = torch.zeros(3).to(weight_dtype)\n    d = path.to(labels)\n    return a, b, c, d\n",
                 NULL, " 4 5");
    expect_lines("import torch\ndef step(x, devices):\n    return x.to(devices[0]), x.to([3][0])\n", NULL, " 3");
}

/* What "try" made holds, unless only "except" makes it. */
Test(values, what_goes_wrong_is_not_what_holds) {
    expect_lines("import torch\ntry:\n    device = torch.device('cuda')\nexcept RuntimeError:\n"
                 "    device = torch.device('cpu')\nx = torch.ones(3).to(device)\n",
                 NULL, " 6");
    expect_lines("import torch\ndef step(model, x):\n    try:\n        y = model(x)\n    except RuntimeError:\n"
                 "        y = torch.zeros(3)\n        raise\n    return y.tolist()\n",
                 NULL, " 8");
    expect_lines("import torch\ntry:\n    import cupy\nexcept ImportError:\n    device = torch.device('cuda')\n"
                 "x = torch.ones(3).to(device)\n",
                 NULL, " 6");
}

Test(values, lists_of_what_is_not_known) {
    expect_lines("import torch\ndef step(boxes):\n    some = []\n    for b in boxes:\n        some.extend(b.parts)\n"
                 "    return torch.cat(some).cpu()\n",
                 NULL, " 6");
}

Test(values, a_mask_of_numbers_is_none) {
    expect_lines(
        "import torch\ndef step(model, x, table):\n    y = model(x)\n    mask = torch.max(y, dim=0).indices\n"
        "    a = y[mask]\n    mask = y.argmax(0)\n    b = y[mask]\n    mask = torch.argmin(y)\n    c = y[mask]\n"
        "    mask = mask == 3\n    return y[mask], a, b, c\n",
        NULL, " 11");
}

/* "else" of a question whether it is a tensor, and what follows a branch of it that returns. */
Test(values, what_is_no_tensor_in_the_other_branch) {
    static const char f[] =
        "import numpy as np\nimport torch\ndef turn(x):\n    if isinstance(x, torch.Tensor):\n"
        "        y = x.clone()\n    else:\n        y = np.asarray(x)\n    return y\n"
        "def keep(x):\n    if isinstance(x, torch.Tensor):\n        return x\n"
        "    return np.asarray(x)\n"
        "def both(x, y):\n    if isinstance(x, torch.Tensor) and y:\n        return x\n"
        "    return np.asarray(x)\n"
        "def list_of(x):\n    if isinstance(x, (list, tuple)):\n        x = np.asarray(x)\n"
        "    if isinstance(x, list):\n        return torch.cat(x).cpu()\n    return x\n"
        "def step(model, x):\n    y = model(x)\n    return turn(y), keep(y), both(y, x), list_of(y)\n";
    expect_lines(f, NULL, " 16 21");
}

/* A class by another name, of another file too. */
Test(values, classes_by_other_names) {
    expect_lines("import torch\nfrom b import Other\nclass C(Other):\n    def step(self, x):\n"
                 "        return self.up(x.cpu().numpy())\n",
                 "class First:\n    def up(self, y):\n        return y + 1\nOther = First\n", " 5");
}
