/* toml_file.h over toml++: the one file in C++, since Debian has no TOML library in C. No exception leaves it. */
#include "toml_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

namespace {

// Each dot may be a table in a table, which toml++ (3.3) takes apart by recursion: enough of them end the process.
constexpr ptrdiff_t MOST_DOTS = 1000;

struct value {
    toml_kind kind;
    std::string text;
};

struct key {
    std::string table, name;
    bool outside, empty, list;
    toml::source_position at;
    std::vector<value> values;
};

value take_value(const toml::node &node) {
    if (const auto *text = node.as_string()) {
        bool whole = text->get().find('\0') == std::string::npos;
        return {whole ? TOML_STRING : TOML_OTHER, whole ? text->get() : ""};
    }
    if (const auto *integer = node.as_integer()) return {TOML_NUMBER, std::to_string(integer->get())};
    if (const auto *real = node.as_floating_point()) {
        char text[64];
        auto end = std::to_chars(text, text + sizeof text, real->get());
        return {TOML_NUMBER, std::string(text, end.ptr)};
    }
    if (const auto *boolean = node.as_boolean()) return {TOML_BOOLEAN, boolean->get() ? "true" : "false"};
    return {TOML_OTHER, ""};
}

key take_key(const std::string &table, bool outside, const toml::key &name, const toml::node &node) {
    key k{table, std::string(name.str()), outside, false, false, name.source().begin, {}};
    if (const auto *list = node.as_array()) {
        k.list = true;
        for (const auto &item : *list) k.values.push_back(take_value(item));
    } else {
        k.values.push_back(take_value(node));
    }
    return k;
}

std::vector<key> take_all(const toml::table &root) {
    std::vector<key> keys;
    for (const auto &[name, node] : root) {
        const auto *table = node.as_table();
        if (!table) {
            keys.push_back(take_key("", true, name, node));
            continue;
        }
        std::string title(name.str());
        keys.push_back({title, "", false, true, false, name.source().begin, {}});
        for (const auto &[inner, value] : *table) keys.push_back(take_key(title, false, inner, value));
    }
    std::stable_sort(keys.begin(), keys.end(), [](const key &a, const key &b) { return a.at < b.at; });
    return keys;
}

ist_status visit_all(const std::vector<key> &keys, const char *path, toml_visit *visit, void *arg, ist_error *err) {
    std::vector<toml_value> values;
    for (const key &k : keys) {
        int line = static_cast<int>(k.at.line), column = static_cast<int>(k.at.column);
        if (k.table.find('\0') != std::string::npos || k.name.find('\0') != std::string::npos)
            return ist_fail(err, IST_E_INPUT, "%s:%d: a name with a zero byte", path, line);
        values.clear();
        for (const value &v : k.values) values.push_back({v.kind, v.text.c_str()});
        toml_key shown{k.outside ? nullptr : k.table.c_str(),
                       k.empty ? nullptr : k.name.c_str(),
                       line,
                       column,
                       k.list,
                       values.data(),
                       values.size()};
        if (ist_status status = visit(arg, &shown, err)) return status;
    }
    return IST_OK;
}

} // namespace

ist_status toml_read(const char *bytes, size_t count, const char *path, toml_visit *visit, void *arg, ist_error *err) {
    if (std::count(bytes, bytes + count, '.') > MOST_DOTS)
        return ist_fail(err, IST_E_LIMIT, "%s: more than %d dots", path, static_cast<int>(MOST_DOTS));
    try {
        toml::table root = toml::parse(std::string_view(bytes, count), std::string_view(path));
        return visit_all(take_all(root), path, visit, arg, err);
    } catch (const toml::parse_error &e) {
        int line = static_cast<int>(e.source().begin.line);
        std::string why(e.description());
        return ist_fail(err, IST_E_INPUT, "%s:%d: %s", path, line, why.c_str());
    } catch (const std::bad_alloc &) {
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", path);
    } catch (const std::exception &e) {
        return ist_fail(err, IST_E_INPUT, "%s: %s", path, e.what());
    }
}

const char *toml_version(void) {
#define TEXT(x)  #x
#define WORDS(x) TEXT(x)
    return WORDS(TOML_LIB_MAJOR) "." WORDS(TOML_LIB_MINOR) "." WORDS(TOML_LIB_PATCH);
}
