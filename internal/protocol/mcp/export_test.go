package mcp

// Tokens is how many tokens a text is taken for.
func Tokens(text string) int { return tokens(text) }

// TakeEdits has all other edits wait, until free.
func (f *Face) TakeEdits() (free func()) {
	for range maxEdits {
		f.edits <- struct{}{}
	}
	return func() {
		for range maxEdits {
			<-f.edits
		}
	}
}

// Bounds.
const (
	MaxDepth  = maxDepth
	MaxCalls  = maxCalls
	MaxResume = maxResume
)
