package protocol

import "strings"

// MaxAnswerHeader bounds the headers of an answer that a program or another server gives us
// to pass on, in bytes: they are held in memory, for each request. Servers of their own
// bound what they take at 8 to 64 KiB.
const MaxAnswerHeader = 256 << 10

// HeaderTooLarge reports whether an [http.Transport] ended an answer for its MaxResponseHeaderBytes.
// net/http has no type for that error.
func HeaderTooLarge(err error) bool {
	return strings.Contains(err.Error(), "response headers exceeded")
}
