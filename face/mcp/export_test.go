package mcp

// Tokens is how many tokens a text is taken for.
func Tokens(text string) int { return tokens(text) }

// Bounds.
const (
	MaxDepth  = maxDepth
	MaxCalls  = maxCalls
	MaxResume = maxResume
)
