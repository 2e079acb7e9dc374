// Package errtext makes errors that have a text of their own and match another error: the
// text tells a person what happened, and the other error tells programs of which kind it is.
package errtext

type textError struct {
	text string
	is   error
}

func (e *textError) Error() string { return e.text }
func (e *textError) Unwrap() error { return e.is }

// New returns an error with a text that matches is, and what is wraps.
func New(text string, is error) error { return &textError{text, is} }
