package tend

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/tend-run/tend/process"
)

func TestDelaysDoubleFromHalfASecondToEight(t *testing.T) {
	policy := Retry{}.withDefaults()
	var got []time.Duration
	for n := 1; n <= 7; n++ {
		got = append(got, policy.delay(n, 0))
	}
	s := time.Second
	if diff := cmp.Diff([]time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 8 * s, 8 * s}, got); diff != "" {
		t.Fatal(diff)
	}
	for n := 1; n <= 7; n++ {
		if d := policy.delay(n, 0.999); d < got[n-1]*3/4 || d >= got[n-1] {
			t.Errorf("delay %d with jitter is %v, of %v", n, d, got[n-1])
		}
	}
}

func TestAServerThatGoesAwayIsCalledAtOnceButNotTwice(t *testing.T) {
	r := &attempts{policy: Retry{}.withDefaults(), random: func() float64 { return 0 }}
	first, _ := r.next(true)
	second, _ := r.next(true)
	r.progress()
	third, _ := r.next(true)
	if diff := cmp.Diff([]time.Duration{0, time.Second, 0}, []time.Duration{first, second, third}); diff != "" {
		t.Fatal(diff)
	}
}

func TestAServerWhoseSocketsOutliveItIsCalledAtOnceWhenItDies(t *testing.T) {
	r := &attempts{policy: Retry{}.withDefaults(), held: true, random: func() float64 { return 0 }}
	first, _ := r.next(false)
	second, _ := r.next(false)
	r.progress()
	third, _ := r.next(false)
	if diff := cmp.Diff([]time.Duration{0, time.Second, 0}, []time.Duration{first, second, third}); diff != "" {
		t.Fatal(diff)
	}
}

func TestAttemptsAreBoundedAndCountedAnewAfterProgress(t *testing.T) {
	r := &attempts{policy: Retry{Attempts: 2}.withDefaults(), random: func() float64 { return 0 }}
	var got []bool
	for _, progress := range []bool{false, false, false, true, false, false} {
		if progress {
			r.progress()
		}
		_, ok := r.next(false)
		got = append(got, ok)
	}
	if diff := cmp.Diff([]bool{true, true, false, true, true, false}, got); diff != "" {
		t.Fatal(diff)
	}
}

// offline is a client without a network, for calls made by the test itself.
func offline(t *testing.T, r Retry) *Client {
	c := newClient("http://test", target{base: "http://test"}, Options{Retry: r, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}}, true)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestACallIsRepeatedAtThePaceOfThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := offline(t, Retry{})
		start, calls := time.Now(), 0
		err := c.call(t.Context(), func(context.Context) error {
			calls++
			return connect.NewError(connect.CodeUnavailable, errors.New("refused"))
		})
		if !errors.Is(err, process.ErrUnavailable) || calls != 11 {
			t.Fatalf("%d calls, %v", calls, err)
		}
		// 0.5+1+2+4+6×8 s, less at most a quarter.
		if d := time.Since(start); d > 55500*time.Millisecond || d < 41*time.Second {
			t.Fatalf("gave up after %v", d)
		}
	})
}

func TestACallThatMayNotBeRepeatedIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, calls := offline(t, Retry{}), 0
		err := c.once(t.Context(), func(context.Context) error {
			calls++
			return connect.NewError(connect.CodeUnavailable, errors.New("reset"))
		})
		if !errors.Is(err, process.ErrUnavailable) || calls != 1 {
			t.Fatalf("%d calls, %v", calls, err)
		}
	})
}

func TestACallToASilentServerIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, calls := offline(t, Retry{}), 0
		err := c.call(t.Context(), func(ctx context.Context) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
			}
			return nil
		})
		if err != nil || calls != 2 || c.conns.current() != 1 {
			t.Fatalf("%d calls over %d sets of connections, %v", calls, c.conns.current()+1, err)
		}
	})
}

func TestTheCallersContextEndsThePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := offline(t, Retry{})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := c.call(ctx, func(context.Context) error {
			return connect.NewError(connect.CodeUnavailable, errors.New("refused"))
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("ended with %v", err)
		}
	})
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]target{
		"http://127.0.0.1:49983":   {base: "http://127.0.0.1:49983"},
		"https://box.example/a/":   {base: "https://box.example/a", tls: true},
		"unix:///run/tend.sock":    {base: "http://tend", socket: "/run/tend.sock"},
		"unix:relative/tend.sock":  {base: "http://tend", socket: "relative/tend.sock"},
		"127.0.0.1:49983":          {},
		"ftp://x":                  {},
		"unix://":                  {},
		"http://":                  {},
		"":                         {},
		"http://[::1]:49983/base/": {base: "http://[::1]:49983/base"},
	} {
		got, err := parseTarget(raw)
		if got != want || (err != nil) != (want == target{}) {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

// Nothing in a URL is ignored, least of all a password; and no error shows one.
func TestAURLWithMoreThanAPlaceIsRefusedByThePartsName(t *testing.T) {
	for raw, part := range map[string]string{
		"http://user:secret@h:1":    "a password",
		"https://user@h":            "a user name",
		"http://:secret@h":          "a password",
		"ftp://user:secret@h":       "a password",
		"http://user:secret@h:port": "cannot be read",
		"http://h:1?token=x":        "a query (?token=x)",
		"http://h:1/base?":          "a query",
		"http://h:1/base#part":      "a fragment (#part)",
		"http://h:1/a b/%2f":        "must be escaped",
	} {
		_, err := Dial(t.Context(), raw, Options{})
		invalid, ok := errors.AsType[*process.InvalidError](err)
		if !ok || invalid.Field != "url" || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want an error that names %s", raw, err, part)
		}
	}
}
