package native

import (
	"errors"
	"time"

	"connectrpc.com/connect"
)

// looks is a stream of what is new at each look: of what the healer does, which is in files.
type looks[M any] struct {
	every     time.Duration // a heartbeat, if nothing else was sent
	heartbeat *M
	stopping  <-chan struct{} // closed when the server is about to end
	away      *M              // the last message then
}

// errStopping: the server ends.
var errStopping = errors.New("the server stops")

// send sends what watch finds, until watch ends. nil: nothing is new at this look.
func (l looks[M]) send(stream *connect.ServerStream[M], watch func(send func(*M) error) error) error {
	last := time.Now()
	err := watch(func(m *M) error {
		select {
		case <-l.stopping:
			return errStopping
		default:
		}
		if m == nil {
			if time.Since(last) < l.every {
				return nil
			}
			m = l.heartbeat
		}
		last = time.Now()
		return stream.Send(m)
	})
	if errors.Is(err, errStopping) {
		return stream.Send(l.away)
	}
	if err != nil {
		return wireError(err)
	}
	return nil
}
