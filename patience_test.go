package tend_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/tend-run/tend"
	"github.com/tend-run/tend/process"
)

// Whoever listens and never answers is given up by a client with patience, at the
// first hello, over each version of HTTP.
func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, opts := range []tend.Options{{Patience: 200 * time.Millisecond}, {Patience: 200 * time.Millisecond, HTTP1: true}} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody does
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := tend.Dial(t.Context(), "http://"+l.Addr().String(), opts)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("%+v: %v; want that it is not reachable", opts, err)
		}
	}
}
