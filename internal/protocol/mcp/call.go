package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// call is a request under way. A handler finds it in its context.
type call struct {
	// key names it. All that it makes is named after the key, so that a repeated call
	// finds it.
	key string
	// again: it may have been made before.
	again bool
	// label tells its processes, for a cancellation that another server gets; "": nobody
	// can cancel it.
	label string
	place *place
	// from is where the output begins that the call is about, if marked: the ends of the streams when
	// it was made first.
	from   [4]int64
	marked bool

	decoded func() // its arguments are read: gives back the memory that this needed

	ctx    context.Context // of the call: ends with errCancelled, errGone or errStopping
	cancel context.CancelCauseFunc
	// unwanted: the client has cancelled it, also if it had ended otherwise before.
	unwanted atomic.Bool
	prime    func() // sends the first event, once
	beat     func() // sends something that means nothing
	mute     func() // nothing more is sent, to a client that can come back
}

// Why a call ends before its time.
var (
	errCancelled = errors.New("the client cancelled the call")
	errGone      = errors.New("the client has gone; what was started goes on")
	errStopping  = errors.New("the server is going away; what was started goes on, call again")
)

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// context returns ctx, which also ends with the call.
func (c *call) context(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if ended := context.Cause(c.ctx); ended != nil {
		cancel(ended) // AfterFunc would do it in a moment, and the call begin
	}
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// name is a name for what the call makes, in n letters and digits.
func (c *call) name(purpose string, n int) string {
	sum := sha256.Sum256([]byte(purpose + "\x00" + c.key))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:n]
}

// process is the ID of the process that the call starts. Models repeat it letter by
// letter: it is short, of 60 bits.
func (c *call) process() process.ID { return process.ID("m" + c.name("process", 11)) }

// writer is the name under which the call writes input.
func (c *call) writer() string { return c.name("writer", 26) }

// labelCall is on each process that a call starts.
const labelCall = "tend.mcp.call"

// label tells the calls of a session apart; "" without one. It says nothing of who
// calls. One who may work in a sandbox alone cancels no call of a session elsewhere.
func label(session string, at *place, id string) string {
	if session == "" || id == "" {
		return ""
	}
	text := session + "\x00" + id
	if at.sandbox != "" {
		text += "\x00" + string(at.sandbox)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Bounds of calls at a time, and of cancellations that came before their call.
const (
	maxCalls = 1024
	maxEarly = 1024
	early    = 10 * time.Second
)

// calls are those under way. The zero value, with stopping and places, is ready for use.
type calls struct {
	stopping chan struct{}

	// places has one for each call, so that those of one sandbox leave some to others.
	places *budget.Budget

	mu    sync.Mutex
	named map[string]map[*call]struct{} // by label; guarded by mu
	// early are cancellations of calls that are not there yet: the two come over
	// connections of their own. Guarded by mu.
	early map[string]time.Time
}

func (c *calls) count() string { return strconv.FormatInt(c.places.Used(), 10) }

// add makes the call one that is under way, until end. false: there are too many, or too
// many of its sandbox.
func (c *calls) add(one *call) (end func(), ok bool) {
	place := c.places.Charge()
	if one.place.sandbox != "" {
		place.For(budget.Sandbox(one.place.sandbox))
	}
	if place.Add(1) != nil {
		return nil, false
	}
	one.ctx, one.cancel = context.WithCancelCause(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.label != "" {
		if c.named == nil {
			c.named = map[string]map[*call]struct{}{}
		}
		if c.named[one.label] == nil {
			c.named[one.label] = map[*call]struct{}{}
		}
		c.named[one.label][one] = struct{}{}
		if at, was := c.early[one.label]; was {
			delete(c.early, one.label)
			if time.Since(at) < early {
				one.unwanted.Store(true)
				one.cancel(errCancelled)
			}
		}
	}
	left := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.stopping:
			one.cancel(errStopping)
		case <-left:
		}
	}()
	return func() {
		close(left)
		<-done
		one.cancel(nil)
		place.Release()
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.named[one.label], one); len(c.named[one.label]) == 0 {
			delete(c.named, one.label)
		}
	}, true
}

// cancel ends the calls with a label. false: there is none that has not ended already.
func (c *calls) cancel(label string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := false
	for one := range c.named[label] {
		one.unwanted.Store(true)
		found = found || one.ctx.Err() == nil
		one.cancel(errCancelled)
	}
	if len(c.named[label]) > 0 {
		return found
	}
	if len(c.early) >= maxEarly {
		for l, at := range c.early {
			if time.Since(at) >= early {
				delete(c.early, l)
			}
		}
	}
	if len(c.early) < maxEarly {
		if c.early == nil {
			c.early = map[string]time.Time{}
		}
		c.early[label] = time.Now()
	}
	return false
}
