package distant

import (
	"errors"
	"strings"
)

var (
	errEmptyCommand = errors.New("the command is empty; name a program")
	errOpenQuote    = errors.New("the command ends inside a quote, or after a backslash; close the quote")
)

// split takes a command line apart as a POSIX shell removes quotes, and does
// nothing else a shell does: no variables, no patterns, no operators. A word
// that begins with # starts a comment to the end of the line.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			continue
		case c == '#' && !inWord:
			end := strings.IndexByte(line[i:], '\n')
			if end < 0 {
				end = len(line) - i
			}
			i += end - 1
			continue
		case c == '\\':
			i++
			switch {
			case i == len(line):
				return nil, errOpenQuote
			case line[i] == '\n': // a line that continues
				continue
			}
			word.WriteByte(line[i])
		case c == '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, errOpenQuote
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case c == '"':
			n, ok := doubleQuoted(&word, line[i+1:])
			if !ok {
				return nil, errOpenQuote
			}
			i += n
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, errEmptyCommand
	}
	return words, nil
}

// doubleQuoted copies the text up to the closing quote and returns its length
// with the quote. A backslash is special before $ ` " \ and a newline only.
func doubleQuoted(word *strings.Builder, rest string) (int, bool) {
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; c {
		case '"':
			return i + 1, true
		case '\\':
			if i++; i == len(rest) {
				return 0, false
			}
			switch rest[i] {
			case '\n':
			case '$', '`', '"', '\\':
				word.WriteByte(rest[i])
			default:
				word.WriteByte('\\')
				word.WriteByte(rest[i])
			}
		default:
			word.WriteByte(c)
		}
	}
	return 0, false
}
