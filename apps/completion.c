/* Completion of command lines in bash, zsh and fish, from the table of commands.h. What each script needs at run time,
 * a list of devices, it asks of `isthmus --list-devices`. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

/* An option's words with blanks between them. */
static void put_words(const cli_option *o) {
    char separator = ' ';
    const char *word = cli_words(o, &separator);
    for (size_t n; word && *word; word += n + !!word[n]) {
        n = strcspn(word, "|,");
        printf(" %.*s", (int)n, word);
    }
}

/* Text inside of single quotes of a shell; characters of `escaped` get a backslash before them. */
static void put_quoted(const char *text, size_t length, const char *escaped, const char *quote) {
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\'') {
            fputs(quote, stdout);
            continue;
        }
        if (strchr(escaped, text[i])) putchar('\\');
        putchar(text[i] == '\n' ? ' ' : text[i]);
    }
}

/* What a menu has room for: the first clause of the sentence. */
static size_t first_clause(const char *sentence) {
    for (size_t i = 1; sentence[i]; i++)
        if (sentence[i] == ';' || (sentence[i] == '.' && (sentence[i + 1] == '\n' || sentence[i + 1] == ' '))) return i;
    return strlen(sentence);
}

static void put_clause(const cli_option *o, const char *escaped, const char *quote) {
    char sentence[CLI_SENTENCE];
    cli_sentence(o, sentence, sizeof sentence);
    put_quoted(sentence, first_clause(sentence), escaped, quote);
}

/* ---- bash ---- */

static const char bash_begin[] =
    "# bash completion for isthmus; printed by isthmus --completion bash\n"
    "\n"
    "# the last of several words that commas separate; none that is there already\n"
    "_isthmus_list()\n"
    "{\n"
    "    local word before= part=${cur##*,}\n"
    "    [[ $cur != *,* ]] || before=${cur%,*},\n"
    "    for word in \"$@\"; do\n"
    "        [[ $word != \"$part\"* || ,$before == *,$word,* ]] || COMPREPLY+=(\"$before$word\")\n"
    "    done\n"
    "    compopt -o nospace 2>/dev/null\n"
    "}\n"
    "\n"
    "_isthmus_devices()\n"
    "{\n"
    "    local word name\n"
    "    while read -r word name; do\n"
    "        [[ $word != \"$cur\"* ]] || COMPREPLY+=(\"$word\")\n"
    "    done < <(\"${COMP_WORDS[0]}\" --list-devices 2>/dev/null)\n"
    "}\n"
    "\n"
    "_isthmus()\n"
    "{\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} options= kind= arguments= words= i\n"
    "    COMPREPLY=()\n"
    "    if [[ $cur == = ]]; then # --name=value comes as three words\n"
    "        cur=\n"
    "    elif [[ $previous == = && COMP_CWORD -gt 2 ]]; then\n"
    "        previous=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    fi\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        compopt +o default 2>/dev/null\n";

static const char bash_middle[] = "        return\n"
                                  "    fi\n"
                                  "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
                                  "        [[ ${COMP_WORDS[i]} != -- ]] || return # names of files, or a program's\n"
                                  "    done\n"
                                  "    case ${COMP_WORDS[1]} in\n";

static const char bash_end[] =
    "    esac\n"
    "    [[ -n $kind || $cur == -* ]] || kind=$arguments\n"
    "    case $kind in\n"
    "    file) ;;\n"
    "    folder) compopt -o dirnames +o default 2>/dev/null ;;\n"
    "    device) compopt +o default 2>/dev/null; _isthmus_devices ;;\n"
    "    list) compopt +o default 2>/dev/null; _isthmus_list $words ;;\n"
    "    word) compopt +o default 2>/dev/null; COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
    "    text | none) compopt +o default 2>/dev/null ;;\n"
    "    *) compopt +o default 2>/dev/null; COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
    "    esac\n"
    "}\n"
    "complete -o default -F _isthmus isthmus\n";

static const char *const bash_kinds[] = {
    [CLI_NO_VALUE] = "none", [CLI_TEXT] = "text", [CLI_FILE] = "file", [CLI_FOLDER] = "folder",
    [CLI_DEVICE] = "device", [CLI_WORD] = "word", [CLI_LIST] = "list"};

static void bash_value(const cli_option *o) {
    cli_kind kind = cli_value_kind(o);
    if (kind == CLI_NO_VALUE) return;
    printf("        ");
    if (o->id < 256) printf("-%c | ", o->id);
    printf("--%s) kind=%s", o->name, bash_kinds[kind]);
    if (kind == CLI_WORD || kind == CLI_LIST) {
        printf(" words='");
        put_words(o);
        putchar('\'');
    }
    puts(" ;;");
}

static void print_bash(void) {
    fputs(bash_begin, stdout);
    printf("        COMPREPLY=($(compgen -W '");
    for (const cli_command *c = cli_this.commands; c->name; c++) printf("%s ", c->name);
    puts("--help --version --completion --man' -- \"$cur\"))");
    fputs(bash_middle, stdout);
    for (const cli_command *c = cli_this.commands; c->name; c++) {
        printf("    %s)\n        arguments=%s\n        options='", c->name, bash_kinds[cli_argument_kind(c)]);
        for (const cli_option *o = NULL; (o = cli_each_option(c, o));) {
            printf(" --%s", o->name);
            if (o->id < 256) printf(" -%c", o->id);
        }
        puts("'\n        case $previous in");
        for (const cli_option *o = NULL; (o = cli_each_option(c, o));) bash_value(o);
        puts("        esac ;;");
    }
    printf("    --completion) words='bash zsh fish' kind=word ;;\n    --man) words='");
    for (const cli_command *c = cli_this.commands; c->name; c++) printf(" %s", c->name);
    puts("' kind=word ;;\n    *) kind=none ;;");
    fputs(bash_end, stdout);
}

/* ---- zsh ---- */

static const char zsh_begin[] =
    "#compdef isthmus\n"
    "# zsh completion for isthmus; printed by isthmus --completion zsh\n"
    "\n"
    "_isthmus_devices() {\n"
    "    local -a devices\n"
    "    devices=(${${(f)\"$(_call_program devices $service --list-devices 2>/dev/null)\"}/$'\\t'/:})\n"
    "    _describe -V device devices\n"
    "}\n"
    "\n"
    "_isthmus() {\n"
    "    local curcontext=$curcontext state line\n"
    "    local -a commands\n"
    "    commands=(\n";

static const char zsh_quote[] = "'\\''";

static void zsh_action(cli_kind kind, const cli_option *o) {
    switch (kind) {
    case CLI_FILE:
        printf("_files");
        break;
    case CLI_FOLDER:
        printf("_files -/");
        break;
    case CLI_DEVICE:
        printf("_isthmus_devices");
        break;
    case CLI_WORD:
        putchar('(');
        put_words(o);
        putchar(')');
        break;
    case CLI_LIST:
        printf("_values -s , %.*s", (int)cli_value_length(o), o->value);
        put_words(o);
        break;
    default:
        putchar(' ');
    }
}

static void zsh_option(const cli_option *o) {
    const bool again = o->value && o->value[cli_value_length(o)] == '.';
    printf("            ");
    if (o->id < 256)
        printf("'(-%c --%s)'{-%c%s,--%s%s}'[", o->id, o->name, o->id, o->value ? "+" : "", o->name,
               o->value ? "=" : "");
    else
        printf("'%s--%s%s[", again ? "*" : "", o->name, o->value ? "=" : "");
    put_clause(o, "[]\\", zsh_quote);
    putchar(']');
    if (o->value) {
        putchar(':');
        put_quoted(o->value, cli_value_length(o), ":\\", zsh_quote);
        putchar(':');
        zsh_action(cli_value_kind(o), o);
    }
    puts("' \\");
}

static void print_zsh(void) {
    fputs(zsh_begin, stdout);
    for (const cli_command *c = cli_this.commands; c->name; c++) {
        printf("        '%s:", c->name);
        put_quoted(c->summary, strlen(c->summary), ":\\", zsh_quote);
        puts("'");
    }
    puts("    )\n"
         "    _arguments -C '(- *)'{-h,--help}'[print the subcommands]' '(- *)--version[print the version]' \\\n"
         "        '(- *)--completion=[print completion for a shell]:shell:(bash zsh fish)' \\\n"
         "        '(-)--man[print a man page]' '1: :->command' '*:: :->arguments'\n"
         "    case $state in\n"
         "    command) _describe -t commands subcommand commands ;;\n"
         "    arguments)\n"
         "        case $words[1] in");
    for (const cli_command *c = cli_this.commands; c->name; c++) {
        printf("        %s)\n            _arguments -s -S \\\n", c->name);
        for (const cli_option *o = NULL; (o = cli_each_option(c, o));) zsh_option(o);
        cli_kind kind = cli_argument_kind(c);
        if (kind == CLI_NO_VALUE)
            puts("                && return ;;");
        else
            printf("                '*:%s:_files%s' ;;\n", kind == CLI_FOLDER ? "folder" : "file",
                   kind == CLI_FOLDER ? " -/" : "");
    }
    puts("        esac ;;\n    esac\n}\n\n_isthmus \"$@\"");
}

/* ---- fish ---- */

static const char fish_quote[] = "\\'";

static void fish_value(const cli_option *o) {
    switch (cli_value_kind(o)) {
    case CLI_NO_VALUE:
        return;
    case CLI_FILE:
        printf(" -r -F");
        return;
    case CLI_FOLDER:
        printf(" -x -a '(__fish_complete_directories)'");
        return;
    case CLI_DEVICE:
        printf(" -x -a '(isthmus --list-devices 2>/dev/null)'");
        return;
    case CLI_WORD:
        printf(" -x -a '");
        put_words(o);
        putchar('\'');
        return;
    case CLI_LIST:
        printf(" -x -a '(__fish_append ,");
        put_words(o);
        printf(")'");
        return;
    default:
        printf(" -x");
    }
}

static void fish_option(const cli_command *c, const cli_option *o) {
    printf("complete -c isthmus -n '__fish_seen_subcommand_from %s'", c->name);
    if (o->id < 256) printf(" -s %c", o->id);
    printf(" -l %s", o->name);
    fish_value(o);
    printf(" -d '");
    put_clause(o, "\\", fish_quote);
    puts("'");
}

static void print_fish(void) {
    puts("# fish completion for isthmus; printed by isthmus --completion fish\n"
         "complete -c isthmus -f\n"
         "complete -c isthmus -n __fish_use_subcommand -s h -l help -d 'print the subcommands'\n"
         "complete -c isthmus -n __fish_use_subcommand -l version -d 'print the version'\n"
         "complete -c isthmus -n __fish_use_subcommand -l completion -x -a 'bash zsh fish' -d 'print completion for a "
         "shell'\n"
         "complete -c isthmus -n __fish_use_subcommand -l man -d 'print a man page'");
    for (const cli_command *c = cli_this.commands; c->name; c++) {
        printf("\ncomplete -c isthmus -n __fish_use_subcommand -a %s -d '", c->name);
        put_quoted(c->summary, strlen(c->summary), "\\", fish_quote);
        puts("'");
        cli_kind kind = cli_argument_kind(c);
        if (kind == CLI_FILE) printf("complete -c isthmus -n '__fish_seen_subcommand_from %s' -F\n", c->name);
        if (kind == CLI_FOLDER)
            printf("complete -c isthmus -n '__fish_seen_subcommand_from %s' -a '(__fish_complete_directories)'\n",
                   c->name);
        for (const cli_option *o = NULL; (o = cli_each_option(c, o));) fish_option(c, o);
    }
}

bool completion_print(const char *shell) {
    if (!strcmp(shell, "bash"))
        print_bash();
    else if (!strcmp(shell, "zsh"))
        print_zsh();
    else if (!strcmp(shell, "fish"))
        print_fish();
    else
        return false;
    return true;
}
