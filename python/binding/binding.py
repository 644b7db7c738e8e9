"""Writes the C source of isthmus/_native/_engine: binding.py isthmus.h held.h OUT.c

cffi reads the declarations from the two headers themselves, so that there is no second list of them: what a header
gains, Python has. The C compiler checks every one against the header when it builds the module.
"""
import re
import sys

import cffi


def declarations(text: str) -> str:
    """What cffi's parser takes of a header: comments, preprocessor lines and X-lists resolved."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    lists = {
        name: re.findall(r"X\((\w+), (-?\d+)", body)
        for name, body in re.findall(r"#define (\w+_LIST)\(X\)((?:.*\\\n)*.*\n)", text)
    }
    text = re.sub(r"^#define X\(name, value, text\) name = value,\n\s*(\w+)\(X\)\n#undef X\n",
                  lambda m: "".join(f"{n} = {v}," for n, v in lists[m.group(1)]), text, flags=re.M)
    text = re.sub(r'#ifdef __cplusplus\n.*?#endif\n', "", text, flags=re.S)
    return re.sub(r"^#(?:.*\\\n)*.*\n", "", text, flags=re.M)


def main(header: str, held: str, out: str) -> None:
    builder = cffi.FFI()
    for path in (header, held):
        with open(path, encoding="utf-8") as file:
            builder.cdef(declarations(file.read()))
    builder.set_source("isthmus._native._engine", '#include "held.h"\n', py_limited_api=True)
    builder.emit_c_code(out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
