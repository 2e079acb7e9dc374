package journal

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/tend-run/tend/process"
)

// State is what the records of a session come to.
type State struct {
	ID uint32
	// Nonce makes the names of this session's processes unique at all times: IDs
	// come again.
	Nonce string
	// OTPs are the one-time passwords that are good now, oldest first.
	OTPs [][]byte
	// Sent is the number of the last frame that was sent, and Base that of the
	// last one before the segment that the state is at the beginning of.
	Sent, Base uint64
	// Answered: all requests up to this frame have been answered. Above are
	// those answered out of order.
	Answered uint64
	Above    []uint64 `json:",omitempty"`
	// Streams by slot: those that are not done, and those of which frames are
	// remembered.
	Streams map[uint32]Stream `json:",omitempty"`
	// Writes holds, by process, the last input; Inputs is the same as former
	// versions noted it.
	Writes map[uint32]Write `json:",omitempty"`
	Inputs map[uint32]Input `json:",omitempty"`
	// Watches, by path.
	Watches map[string]Watch `json:",omitempty"`
	// Searches that run.
	Searches map[uint32]Search `json:",omitempty"`
	Slots    uint32            // given out so far
}

// Stream is one process whose output is sent.
type Stream struct {
	Slot    uint32
	Number  uint32 // of the process, as clients know it
	Process process.ID
	Origin  string
	Request uint64   // that asked for it
	Done    uint64   `json:",omitempty"` // frame of proc_done; 0: it continues
	PTY     bool     `json:",omitempty"`
	Own     bool     `json:",omitempty"` // spawned by this session, not attached
	Next    [4]int64 // offsets that come next
}

// Input is the last input of a process: the request that brought it, and the
// offset at which it begins.
type Input struct {
	Request uint64
	Index   uint32
	Offset  int64
}

// Write is the last input of a process: the request that brought it, and which
// of the bytes that this session has written these are.
type Write struct {
	Process uint32
	Request uint64
	Index   uint32 `json:",omitempty"`
	Offset  int64
	Length  int64
	// Turn counts the names under which the session has written: one that was
	// forgotten is not used again.
	Turn int `json:",omitempty"`
}

// Before reports whether the write was noted before that of another request.
func (w *Write) Before(request uint64, index uint32) bool {
	return w.Request < request || w.Request == request && w.Index < index
}

// Watch is a path that is watched.
type Watch struct {
	Path, Origin string
	Recursive    bool     `json:",omitempty"`
	Kinds        []string `json:",omitempty"` // that are reported; empty: all
	Removed      bool     `json:",omitempty"`
}

// Search is a search that runs. It ends with its server.
type Search struct {
	ID      uint32
	Origin  string
	Removed bool `json:",omitempty"`
}

// apply adds a record to the state. Records that contradict it are ignored:
// nothing that lies on disk may stop the server.
func (s *State) apply(r *Record) {
	if r.isFrame() && r.Frame > s.Sent {
		s.Sent = r.Frame
	}
	switch r.Kind {
	case KindMessage:
		if r.Request > 0 {
			s.answer(r.Request)
		}
	case KindOutput:
		if st, ok := s.Streams[r.Slot]; ok {
			st.Next[r.Stream] = r.Offset + int64(r.Length)
			s.Streams[r.Slot] = st
		}
	case KindDone:
		if st, ok := s.Streams[r.Slot]; ok {
			st.Done = r.Frame
			s.Streams[r.Slot] = st
			delete(s.Inputs, st.Number)
			delete(s.Writes, st.Number)
		}
	case KindStream:
		var st Stream
		if json.Unmarshal(r.Data, &st) == nil {
			set(&s.Streams, st.Slot, st)
			s.Slots = max(s.Slots, st.Slot)
		}
	case KindInput:
		set(&s.Inputs, r.Process, Input{r.Request, r.Index, r.Offset})
	case KindWrite:
		var w Write
		if json.Unmarshal(r.Data, &w) == nil {
			set(&s.Writes, w.Process, w)
			delete(s.Inputs, w.Process)
		}
	case KindOTP:
		s.OTPs = nil
		for otp := range slices.Chunk(r.Data, 32) {
			s.OTPs = append(s.OTPs, slices.Clone(otp))
		}
	case KindWatch:
		var w Watch
		if json.Unmarshal(r.Data, &w) == nil {
			if w.Removed {
				delete(s.Watches, w.Path)
			} else {
				set(&s.Watches, w.Path, w)
			}
		}
	case KindSearch:
		var js Search
		if json.Unmarshal(r.Data, &js) == nil {
			if js.Removed {
				delete(s.Searches, js.ID)
			} else {
				set(&s.Searches, js.ID, js)
			}
		}
	}
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// maxAbove bounds the requests that are answered out of order.
const maxAbove = 1 << 16

func (s *State) answer(request uint64) {
	if request <= s.Answered || len(s.Above) >= maxAbove {
		return
	}
	if request != s.Answered+1 {
		if i, found := slices.BinarySearch(s.Above, request); !found {
			s.Above = slices.Insert(s.Above, i, request)
		}
		return
	}
	s.Answered++
	n := 0
	for n < len(s.Above) && s.Above[n] == s.Answered+1 {
		s.Answered++
		n++
	}
	s.Above = slices.Delete(s.Above, 0, n)
}

// WasAnswered reports whether the request has had its answer.
func (s *State) WasAnswered(request uint64) bool {
	if request <= s.Answered {
		return true
	}
	_, found := slices.BinarySearch(s.Above, request)
	return found
}

// forget drops the streams of which no frame after the number is remembered.
func (s *State) forget(frame uint64) {
	maps.DeleteFunc(s.Streams, func(_ uint32, st Stream) bool { return st.Done > 0 && st.Done <= frame })
}

// clone is a copy that shares nothing that changes.
func (s *State) clone() State {
	c := *s
	c.OTPs, c.Above = slices.Clone(s.OTPs), slices.Clone(s.Above)
	c.Streams, c.Inputs, c.Watches = maps.Clone(s.Streams), maps.Clone(s.Inputs), maps.Clone(s.Watches)
	c.Searches, c.Writes = maps.Clone(s.Searches), maps.Clone(s.Writes)
	return c
}
