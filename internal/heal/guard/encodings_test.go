package guard

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"mime/quotedprintable"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// encoding is a way to write a secret.
type encoding struct {
	name   string
	encode func(string) string
	kind   int
}

// kinds of encodings, for those in one another.
const (
	hasCase    = 1 << iota // lost in capitals
	hasColumns             // lost where lines are broken elsewhere
	breaksLines
	changesCase
	isJoined // needs a secret of which something is left without quotes
	isASCII  // has no other characters
	isTwo    // two encodings
	endsOpen // a digit behind it belongs to it
)

// encodings are those of the package comment: each hides a secret in a text.
var encodings = []encoding{
	{"as it is", func(s string) string { return s }, 0},
	{"reversed", reversed, 0},
	{"base64, first alignment", to64, hasCase},
	{"base64, second alignment", func(s string) string { return to64("x" + s + "yz") }, hasCase},
	{"base64, third alignment", func(s string) string { return to64("user:12:" + s + "y") }, hasCase},
	{"base64 of URLs", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("ab" + s)) }, hasCase},
	{"base64 in lines", func(s string) string { return wrap(to64(s), 5, "\n") }, hasCase},
	{"base64 in a form", func(s string) string { return url.QueryEscape(to64(s)) }, hasCase},
	{"base64 of it reversed", func(s string) string { return to64(reversed(s)) }, hasCase | isTwo},
	{"base64, reversed", func(s string) string { return reversed(to64(s)) }, hasCase | isTwo},
	{"base64 of base64", func(s string) string { return to64(to64(s)) }, hasCase | isTwo},
	{"base32", to32, 0},
	{"base32 behind another", func(s string) string { return to32("abc" + s) }, 0},
	{"base32, small, in lines", func(s string) string { return wrap(strings.ToLower(to32(s)), 7, "\n") }, 0},
	{"bits", func(s string) string { return wrap(each(s, "%08b"), 76, "\n") }, 0},
	{"bits, the lowest first", func(s string) string { return reversed(each(reversed(s), "%08b")) }, isTwo},
	{"quoted-printable", toPrintable, isTwo}, // it breaks lines, too
	{"quoted-printable, each byte", func(s string) string { return each(s, "=%02X") }, 0},
	{"quoted-printable, in lines", func(s string) string { return wrap(s, 5, "=\r\n") }, isTwo},
	{"hex", toHex, 0},
	{"hex in capitals", func(s string) string { return strings.ToUpper(toHex(s)) }, 0},
	{"hex with colons", func(s string) string { return wrap(toHex(s), 2, ":") }, 0},
	{"hex with spaces", func(s string) string { return each(s, "%02X ") }, 0},
	{"percent", url.PathEscape, 0},
	{"a form", url.QueryEscape, 0},
	{"percent, each byte", func(s string) string { return each(s, "%%%02X") }, 0},
	{"percent, small, twice", func(s string) string { return each(s, "%%25%02x") }, 0},
	{"percent of JavaScript", func(s string) string { return eachUnit(s, "%%u%04x") }, 0},
	{"JSON", quoteJSON, 0},
	{"JSON, each character", func(s string) string { return eachUnit(s, `\u%04x`) }, 0},
	{"JSON in JSON", func(s string) string { return quoteJSON(quoteJSON(s)) }, 0},
	{"JSON, a list of characters", func(s string) string {
		b, _ := json.Marshal(strings.Split(s, ""))
		return string(b)
	}, isJoined},
	{"JavaScript, each character", func(s string) string { return eachRune(s, `\u{%x}`) }, 0},
	{"Python, each character", func(s string) string { return eachRune(s, `\U%08x`) }, 0},
	{"Go, C", strconv.Quote, 0},
	{"C, each byte", func(s string) string { return each(s, `\x%02x`) }, 0},
	{"C, octal", func(s string) string { return each(s, `\%03o`) }, 0},
	{"a shell", func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }, 0},
	{"HTML", html.EscapeString, 0},
	{"HTML, each character", func(s string) string { return eachRune(s, "&#%d;") }, 0},
	{"HTML, each character in hex", func(s string) string { return eachRune(s, "&#x%X;") }, 0},
	{"HTML, without semicolons", func(s string) string { return eachRune(s, "&#%d") }, endsOpen},
	{"HTML in hex, without semicolons", func(s string) string { return eachRune(s, "&#x%x") }, endsOpen},
	{"a letter a line", func(s string) string { return wrap(s, 1, "\n") }, breaksLines},
	{"lines of three, indented", func(s string) string { return wrap(s, 3, "\r\n\t ") }, breaksLines},
	{"JSON of lines", func(s string) string { return quoteJSON(wrap(s, 4, "\n")) }, breaksLines | isTwo},
	{"colours between", func(s string) string { return wrap(s, 2, "\x1b[1;31m") }, 0},
	{"capitals", upper, changesCase},
	{"parts of a string in code", func(s string) string { return `"` + wrap(s, 3, `" + "`) + `"` }, isJoined},
	{"C, an array", func(s string) string { return "{" + each(s, "0x%02x, ") + "}" }, 0},
	{"C, an array of few digits", func(s string) string { return "{" + each(s, "0x%X,") + "}" }, 0},
	{"C, an array in octal", func(s string) string { return "{" + each(s, "0%03o, ") + "}" }, 0},
	{"Python, octal", func(s string) string { return "[" + each(s, "0o%03o, ") + "]" }, 0},
	{"JavaScript, a list", func(s string) string { return "[" + strings.TrimSuffix(each(s, "%d, "), ", ") + "]" }, 0},
	{"Java, a list with signs", func(s string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			fmt.Fprintf(&b, "%d, ", int8(c))
		}
		return "[" + b.String() + "]"
	}, 0},
	{"Go, a list", func(s string) string { return fmt.Sprint([]byte(s)) }, hasColumns},
	{"Node, a buffer", func(s string) string { return "<Buffer " + wrap(toHex(s), 2, " ") + ">" }, 0},
	{"hexdump", words("%07x", 2, " %04x"), hasColumns},
	{"hexdump -C", func(s string) string {
		return dump(s, func(at int, line string) string {
			return fmt.Sprintf("%08x  %-24s %-24s |%s|", at, each(line[:min(8, len(line))], "%02x "), each(line[min(8, len(line)):], "%02x "), printed(line))
		}) + fmt.Sprintf("%08x\n", len(s))
	}, hasColumns},
	{"hexdump -c, od -c", func(s string) string { return dump(s, characters) + fmt.Sprintf("%07o\n", len(s)) }, hasColumns},
	{"od -a", func(s string) string {
		return dump(s, func(at int, line string) string {
			return fmt.Sprintf("%07o", at) + strings.ReplaceAll(each(line, "   %c"), "    ", "  sp")
		})
	}, hasColumns | isASCII},
	{"xxd", beside("%08x: %-40s %s", func(line string) string { return wrap(toHex(line), 4, " ") }), hasColumns},
	{"xxd -g1", beside("%08x: %-48s %s", func(line string) string { return each(line, "%02x ") }), hasColumns},
	{"xxd -e", beside("%08x: %-36s  %s", func(line string) string { return strings.TrimPrefix(group(line, 4, " %08x"), " ") }), hasColumns},
	{"xxd -b", beside("%08x: %-144s %s", func(line string) string { return each(line, "%08b ") }), hasColumns},
	{"xxd -p", func(s string) string { return wrap(toHex(s), 60, "\n") + "\n" }, 0},
	{"xxd -i", func(s string) string {
		return "unsigned char secret[] = {\n" + dump(s, func(_ int, line string) string { return "  " + each(line, "0x%02x, ") }) +
			fmt.Sprintf("};\nunsigned int secret_len = %d;\n", len(s))
	}, 0},
	{"od", words("%07o", 2, " %06o"), hasColumns},
	{"od -x", words("%07o", 2, " %04x"), hasColumns},
	{"od -d", words("%07o", 2, " %5d"), hasColumns},
	{"od -b", words("%07o", 1, " %03o"), hasColumns},
	{"od -t x1z", beside("%07o%-48s  >%s<", func(line string) string { return each(line, " %02x") }), hasColumns},
	{"od -t u1", words("%07o", 1, " %3d"), hasColumns},
	{"od -A n -t u1", func(s string) string { return dump(s, func(_ int, line string) string { return each(line, " %3d") }) }, hasColumns},
	{"od -t x4", words("%07o", 4, " %08x"), hasColumns},
	{"od -t x8", words("%07o", 8, " %016x"), hasColumns},
	{"od -t u4", words("%07o", 4, " %10d"), hasColumns},
	{"od -t u8", words("%07o", 8, " %20d"), hasColumns},
	{"od -t o8", words("%07o", 8, " %022o"), hasColumns},
	{"od -A d -t x1", words("%07d", 1, " %02x"), hasColumns},
}

func to64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func to32(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) }

func toPrintable(s string) string {
	var b strings.Builder
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(s)) // to memory
	_ = w.Close()
	return b.String()
}

func toHex(s string) string { return hex.EncodeToString([]byte(s)) }

func reversed(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// dump writes lines of 16 bytes.
func dump(s string, write func(at int, line string) string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += 16 {
		b.WriteString(write(i, s[i:min(len(s), i+16)]) + "\n")
	}
	return b.String()
}

// words writes words of which the last byte is the first, as od does.
func words(offset string, size int, format string) func(string) string {
	return func(s string) string {
		return dump(s, func(at int, line string) string { return fmt.Sprintf(offset, at) + group(line, size, format) }) + fmt.Sprintf(offset, len(s)) + "\n"
	}
}

func group(line string, size int, format string) string {
	var b strings.Builder
	for i := 0; i < len(line); i += size {
		var word uint64
		for k := range size {
			if i+k < len(line) {
				word |= uint64(line[i+k]) << (8 * k)
			}
		}
		fmt.Fprintf(&b, format, word)
	}
	return b.String()
}

// beside writes the text beside the numbers.
func beside(format string, numbers func(line string) string) func(string) string {
	return func(s string) string {
		return dump(s, func(at int, line string) string { return fmt.Sprintf(format, at, numbers(line), printed(line)) })
	}
}

func printed(line string) string {
	b := []byte(line)
	for i, c := range b {
		if c < 0x20 || c > 0x7e {
			b[i] = '.'
		}
	}
	return string(b)
}

func characters(at int, line string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%07o", at)
	for _, c := range []byte(line) {
		switch {
		case c >= 0x20 && c <= 0x7e:
			fmt.Fprintf(&b, "   %c", c)
		case c == '\n':
			b.WriteString(`  \n`)
		default:
			fmt.Fprintf(&b, " %03o", c)
		}
	}
	return b.String()
}

func eachUnit(s, format string) string {
	var b strings.Builder
	for _, c := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func each(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func eachRune(s, format string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func upper(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' {
			c += 'A' - 'a'
		}
		return c
	}, s)
}

func wrap(s string, n int, sep string) string {
	var b strings.Builder
	for i := 0; i < len(s); i += n {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s[i:min(len(s), i+n)])
	}
	return b.String()
}
