package gateway

import "encoding/json"

// What is here reads the plain JSON that plainly writes: it is valid, and has no space
// between its parts. Each value that is passed on is a piece of the text.

// endOfValue is where the value ends that begins at i.
func endOfValue(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of what is around a number or a word
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

func unquote(quoted []byte) (text string) {
	_ = json.Unmarshal(quoted, &text) // it is valid
	return text
}

// fields calls f with each name and value of an object, in their order, until f is not
// content. It reports whether the value is an object, and f was content with all.
func fields(object json.RawMessage, f func(name string, value json.RawMessage) bool) bool {
	if len(object) == 0 || object[0] != '{' {
		return false
	}
	for i := 1; object[i] == '"' || object[i] == ','; {
		if object[i] == ',' {
			i++
		}
		colon := endOfString(object, i)
		end := endOfValue(object, colon+1)
		if !f(unquote(object[i:colon]), object[colon+1:end]) {
			return false
		}
		i = end
	}
	return true
}

// elements is fields for an array.
func elements(array json.RawMessage, f func(value json.RawMessage) bool) bool {
	if len(array) == 0 || array[0] != '[' {
		return false
	}
	for i := 1; array[i] != ']'; {
		if array[i] == ',' {
			i++
		}
		end := endOfValue(array, i)
		if !f(array[i:end]) {
			return false
		}
		i = end
	}
	return true
}
