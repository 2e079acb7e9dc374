package mcp

// maxDepth bounds how deep the values of a message are nested. Decoders go as deep as
// they are led.
const maxDepth = 64

// tooDeep reports whether JSON is nested deeper than maxDepth. It need not be valid.
func tooDeep(text []byte) bool {
	depth, quoted, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			quoted, escaped = c != '"', c == '\\'
		case c == '"':
			quoted = true
		case c == '[', c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']', c == '}':
			depth--
		}
	}
	return false
}
