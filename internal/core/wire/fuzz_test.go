package wire

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tend-run/tend/process"
)

// maxGrowth bounds what a decoded body may hold, as a multiple of its bytes: a
// string header is four times the shortest encoding of a string.
const maxGrowth = 8

func counts(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }

// FuzzCut: frames come off one by one, nothing is lost between them, and a
// stream without a whole frame is left as it is.
func FuzzCut(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(counts(9), make([]byte, 9)...))
	f.Add(append(counts(9), make([]byte, 30)...))
	f.Add(counts(8))
	f.Add(counts(MaxFrame + 1))
	f.Add(counts(1<<32 - 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		left := b
		for {
			frame, rest, err := Cut(left)
			if err != nil || frame == nil {
				if !bytes.Equal(rest, left) {
					t.Fatalf("%d bytes were left and %d came back", len(left), len(rest))
				}
				break
			}
			if len(frame) < 9 || len(frame) > MaxFrame {
				t.Fatalf("a frame of %d bytes", len(frame))
			}
			again = append(append(again, counts(uint32(len(frame)))...), frame...)
			left = rest
		}
		if again = append(again, left...); !bytes.Equal(again, b) {
			t.Fatalf("%x came apart as %x", b, again)
		}
	})
}

// FuzzSpawn: what is decoded encodes to the same bytes, and holds no more
// than was sent.
func FuzzSpawn(f *testing.F) {
	for _, s := range []Spawn{
		{}, {Spec: []byte("spec"), Path: "/bin/true", Argv: []string{"true", ""}, Env: []string{"A=1"}, Dir: "/", Cred: true, UID: 1, GID: 2, Groups: []uint32{3, 4}},
		{Path: "/bin/true", Sync: 1, Container: "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10"},
	} {
		var e Enc
		s.Append(&e)
		f.Add(e.B)
		f.Add(e.B[:len(e.B)-1])
	}
	// Counts that lie.
	f.Add(bytes.Join([][]byte{counts(0), counts(0), counts(1 << 31)}, nil))
	f.Add(bytes.Join([][]byte{counts(0), counts(0), counts(0), counts(0), counts(0), {1}, counts(0), counts(0), counts(1<<32 - 1)}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSpawn(b)
		if n := len(s.Argv) + len(s.Env) + len(s.Groups); n > len(b)*maxGrowth {
			t.Fatalf("%d bytes became %d words", len(b), n)
		}
		if err != nil {
			return
		}
		var e Enc
		s.Append(&e)
		again, err := ParseSpawn(e.B)
		if d := cmp.Diff(s, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Fatalf("%v -first +again:\n%s", err, d)
		}
	})
}

// FuzzAnswers: the small messages, each of which ends where its bytes do.
func FuzzAnswers(f *testing.F) {
	for _, m := range []interface{ Append(*Enc) }{
		&Hello{Version: 1, PID: 2, Facts: []string{"splice=yes", "cgroup!none"}}, &Spawned{Ref: Ref{1, 2}, PID: 3, Existing: true, Keeper: 4}, &Spawned{Ref: Ref{1, 2}, PID: 3, Inner: 5},
		&Killed{Verified: true, Survivors: []uint32{5, 6}}, &Error{Code: CodeStart, Reason: 2, Errno: 3, What: "why"},
	} {
		var e Enc
		m.Append(&e)
		f.Add(e.B)
	}
	f.Add(append([]byte{1}, counts(1<<31)...))
	f.Add([]byte{1, 0, 0, 0, 0}) // the answer to a kill, in its short form
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, parse := range map[string]func([]byte) (interface{ Append(*Enc) }, error){
			"hello":   func(b []byte) (interface{ Append(*Enc) }, error) { m, err := ParseHello(b); return &m, err },
			"spawned": func(b []byte) (interface{ Append(*Enc) }, error) { m, err := ParseSpawned(b); return &m, err },
			"killed":  func(b []byte) (interface{ Append(*Enc) }, error) { m, err := ParseKilled(b); return &m, err },
			"error":   func(b []byte) (interface{ Append(*Enc) }, error) { return ParseError(b) },
		} {
			m, err := parse(b)
			if err != nil {
				continue
			}
			var e Enc
			m.Append(&e)
			var short Enc // an answer may come from a server of before
			if k, ok := m.(*Killed); ok {
				(*ShortKilled)(k).Append(&short)
			}
			if s, ok := m.(*Spawned); ok && s.Inner == 0 { // says it, or leaves it out
				s.Append(&short)
				short.U32(0)
			}
			if len(e.B) != len(b) && len(short.B) != len(b) {
				t.Errorf("%s: %x was read as %x", name, b, e.B)
			}
			again, err := parse(e.B)
			if d := cmp.Diff(m, again, cmpopts.EquateEmpty()); err != nil || d != "" {
				t.Errorf("%s: %v -first +again:\n%s", name, err, d)
			}
		}
	})
}

// FuzzRequests: the small requests, each of which ends where its bytes do.
func FuzzRequests(f *testing.F) {
	ref := Ref{1, 2}
	for _, m := range []Body{
		Signal{ref, 15, process.ScopeTree}, Kill{ref, process.CauseKilled}, Resize{ref, process.Resize{To: process.Size{Cols: 80, Rows: 24}}},
		Resize{ref, process.Resize{Only: &process.Size{Cols: 1, Rows: 1}}}, Trim{ref, process.Stderr, 1 << 40}, Pin{ref, true}, ref,
	} {
		f.Add(AppendRequest(nil, 1, 2, m)[4+head:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, parse := range map[string]func([]byte) (Body, error){
			"signal": func(b []byte) (Body, error) { return ParseSignal(b) },
			"kill":   func(b []byte) (Body, error) { return ParseKill(b) },
			"resize": func(b []byte) (Body, error) { return ParseResize(b) },
			"trim":   func(b []byte) (Body, error) { return ParseTrim(b) },
			"pin":    func(b []byte) (Body, error) { return ParsePin(b) },
			"target": func(b []byte) (Body, error) { return ParseTarget(b) },
		} {
			m, err := parse(b)
			if err != nil {
				continue
			}
			frame, rest, err := Cut(AppendRequest(nil, 7, OpTrim, m))
			if err != nil || len(rest) > 0 || frame.Number() != 7 || frame.Op() != OpTrim || len(frame.Body()) != len(b) {
				t.Fatalf("%s: %x became the frame %x, %v", name, b, frame, err)
			}
			again, err := parse(frame.Body())
			if d := cmp.Diff(m, again); err != nil || d != "" {
				t.Errorf("%s: %v -first +again:\n%s", name, err, d)
			}
		}
	})
}

func TestAnAnswerIsABodyOrAnError(t *testing.T) {
	f, _, err := Cut(AppendAnswer(nil, 3, 2, &Spawned{PID: 4}))
	fds, body, werr, aerr := f.Answer()
	if s, perr := ParseSpawned(body); err != nil || aerr != nil || perr != nil || f.Number() != 3 || fds != 2 || werr != nil || s.PID != 4 {
		t.Errorf("%x: %d descriptors, %+v, %v", f, fds, s, werr)
	}
	f, _, _ = Cut(AppendAnswer(nil, 3, 0, &Error{Code: CodeBusy}))
	if fds, body, werr, err := f.Answer(); err != nil || fds != 0 || body != nil || werr == nil || werr.Code != CodeBusy {
		t.Errorf("%x: %v, %v", f, werr, err)
	}
	f, _, _ = Cut(AppendAnswer(nil, 3, 0, nil))
	if fds, body, werr, err := f.Answer(); err != nil || fds != 0 || len(body) != 0 || werr != nil {
		t.Errorf("%x: %v, %v", f, werr, err)
	}
}

// FuzzVault: a packet is its own encoding.
func FuzzVault(f *testing.F) {
	f.Add((&VaultMessage{Op: VaultPut, Ref: Ref{1, 2}, Kinds: []byte{FDStdin, FDPid}}).Append(nil))
	f.Add((&VaultMessage{Op: VaultFetch}).Append(nil))
	f.Add([]byte{VaultDrop, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseVault(b)
		if err != nil {
			return
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x was read as %x", b, again)
		}
	})
}
