package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// mostArriving is how many bodies of a key are received at a time, and mostArrivingOfAll
// of all keys. When there are more, the one that has taken longest gives way: bodies that
// do not come cannot keep out those that do.
const mostArriving, mostArrivingOfAll = 256, 4096

// arrival is a body that is being received.
type arrival struct {
	of   *visits
	rc   *http.ResponseController
	over bool // it gave way; guarded by Face.mu
}

// receive reads the body of a request, which has no place among those that are passed on
// before it is whole.
func (f *Face) receive(w http.ResponseWriter, r *http.Request, key *Key) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	a := f.arrives(w, key)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if f.arrived(a) {
		return nil, &refusal{status: http.StatusRequestTimeout,
			text: fmt.Sprintf("the body came slowly, and of the %d that this key, and %d that all keys may send at a time it took longest; send it again, faster or with fewer beside it", mostArriving, mostArrivingOfAll)}
	}
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("the body has more than %d bytes", maxBody)}
	}
	if err := refuseBusy(err); errors.As(err, new(*refusal)) {
		return nil, err
	}
	return nil, &refusal{status: http.StatusBadRequest, text: "the body was not received to its end"}
}

// arrives notes a body, and has another give way if there are too many.
func (f *Face) arrives(w http.ResponseWriter, key *Key) *arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := &arrival{of: f.visitsOf(key), rc: http.NewResponseController(w)}
	a.of.arriving, f.coming = append(a.of.arriving, a), append(f.coming, a)
	switch {
	case len(a.of.arriving) > mostArriving:
		f.giveWay(a.of.arriving[0])
	case len(f.coming) > mostArrivingOfAll:
		f.giveWay(f.coming[0])
	}
	return a
}

// giveWay ends a body. f.mu is held, which its handler takes before it returns: the
// response is still its own.
func (f *Face) giveWay(a *arrival) {
	a.over = true
	f.forget(a)
	_ = a.rc.SetReadDeadline(time.Unix(1, 0)) // where that cannot be, the body ends by itself
}

// arrived ends an arrival, and reports whether it had to give way.
func (f *Face) arrived(a *arrival) (over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !a.over {
		f.forget(a)
	}
	return a.over
}

// forget removes an arrival. f.mu is held.
func (f *Face) forget(a *arrival) {
	is := func(other *arrival) bool { return other == a }
	a.of.arriving, f.coming = slices.DeleteFunc(a.of.arriving, is), slices.DeleteFunc(f.coming, is)
}
