package healing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
)

const (
	// liveEvery is the time between two looks at the files of an episode that somebody
	// watches. Its worker writes them, which outlives this server.
	liveEvery = 200 * time.Millisecond
	// livePiece bounds the transcript in one message, in bytes.
	livePiece   = 1 << 20
	maxSteps    = 1000
	maxStepText = 2 << 10
)

// Watch sends an episode, "": the newest, and what becomes of it, until it is over. The
// transcript begins at from. While nothing is new it sends nil, at each look; an error of
// send ends it.
func (h *Healing) Watch(ctx context.Context, id string, from int64, send func(*tendv1.WatchEpisodeResponse) error) error {
	if id == "" {
		if ids := h.store.episodes(); len(ids) > 0 {
			id = ids[0]
		}
	}
	if _, err := h.message(id); err != nil {
		return err
	}
	l := &live{h: h, id: id, dir: h.store.episode(id), at: from, diffs: map[string]print{}}
	for {
		m, over, err := l.poll(ctx)
		if err != nil {
			return err
		}
		if err := send(m); err != nil {
			return err
		}
		if over {
			return nil
		}
		if m != nil && len(m.Transcript) > 0 {
			continue // there may be more
		}
		if !backoff.Wait(ctx, liveEvery) {
			return ctx.Err()
		}
	}
}

// live is the state of an episode that one watcher has received.
type live struct {
	h       *Healing
	id, dir string
	journal print
	running print
	words   print
	diffs   map[string]print
	at      int64 // in the transcript
	tries   int
	undone  map[int]bool // tries that were taken back
	over    bool
	begun   bool
}

// print is what a file looked like.
type print struct {
	size int64
	at   time.Time
}

func (l *live) print(name string) print {
	st, err := os.Lstat(filepath.Join(l.dir, name))
	if err != nil {
		return print{size: -1}
	}
	return print{st.Size(), st.ModTime()}
}

// poll returns what is new, or nil, and whether nothing more will follow.
func (l *live) poll(ctx context.Context) (m *tendv1.WatchEpisodeResponse, over bool, err error) {
	m = &tendv1.WatchEpisodeResponse{}
	// The journal is read first: so everything that was written before its end is there.
	p, runs := l.print(healer.JournalFile), l.print(healer.RunningFile)
	if p != l.journal || runs != l.running || !l.begun {
		l.journal, l.running, l.begun = p, runs, true
		if err := l.state(ctx, m); err != nil {
			return nil, false, err
		}
	}
	more, err := l.transcript(m)
	if err != nil {
		return nil, false, err
	}
	l.diff(m)
	if p := l.print(healer.WordsFile); p != l.words {
		l.words = p
		m.Words = l.saying()
	}
	over = l.over && !more
	if proto.Size(m) == 0 {
		return nil, over, nil
	}
	m.TranscriptTo = l.at
	return m, over, nil
}

// state adds the state in the journal to m.
func (l *live) state(ctx context.Context, m *tendv1.WatchEpisodeResponse) (err error) {
	if m.Episode, err = l.h.message(l.id); err != nil {
		return err
	}
	l.h.told(ctx, m.Episode)
	l.over = m.Episode.GetEnded() != nil
	l.tries = len(m.Episode.GetTries())
	entries, err := healer.ReadJournal(filepath.Join(l.dir, healer.JournalFile))
	if err != nil {
		return err
	}
	var s healer.State
	l.undone = map[int]bool{}
	for _, e := range entries {
		before := s
		s, _ = healer.Step(s, e)
		one := &tendv1.HealStep{At: stamp(e.At), Kind: e.Kind.String(), Text: short(e.Text), Ok: e.OK, Paths: e.Paths, Commit: e.Commit}
		if e.Kind == healer.Opened || e.Kind == healer.Signalled {
			if e.Signal != nil {
				one.Text = short(e.Signal.Kind + ": " + e.Signal.Text)
			}
		}
		if e.Kind == healer.Answered {
			if e.Did != before.Doing || e.Seq != before.Seq {
				continue // it came too late, and changed nothing
			}
			one.Did = e.Did.String()
			if before.Try() != nil {
				n := len(before.Tries)
				one.Try = int32(n)
				l.undone[n] = l.undone[n] || e.Did == healer.Rollback && e.OK
			}
		}
		m.Steps = append(m.Steps, one)
	}
	if n := len(m.Steps) - maxSteps; n > 0 {
		m.Steps = m.Steps[n:]
	}
	return nil
}

func short(s string) string {
	if len(s) <= maxStepText {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:maxStepText]), nil)) + "\u2026"
}

// diff adds the changes of the tries to m.
func (l *live) diff(m *tendv1.WatchEpisodeResponse) {
	for n := 1; n <= l.tries; n++ {
		name, undone := healer.TakenBackFile(n), true
		if !l.undone[n] {
			if n != l.tries {
				continue
			}
			name, undone = healer.DiffFile, false
		}
		p := l.print(name)
		if p.size < 0 || l.diffs[name] == p {
			continue
		}
		text, err := tailOf(filepath.Join(l.dir, name), healer.MaxDiff)
		if err != nil {
			continue // it is replaced; the next look finds it
		}
		l.diffs[name] = p
		m.Diffs = append(m.Diffs, &tendv1.HealDiff{Try: int32(n), Text: text, Undone: undone})
	}
}

// transcript adds the next piece of the conversation to m, and reports whether there is
// more.
func (l *live) transcript(m *tendv1.WatchEpisodeResponse) (more bool, err error) {
	f, err := atomicfile.Open(filepath.Join(l.dir, healer.TranscriptFile), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		l.at = 0
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	size := st.Size()
	if l.at > size {
		l.at = 0 // it is not the file that the caller means
	}
	if l.at == size {
		return false, nil
	}
	from, skip := l.at, false
	if size-from > maxTranscript {
		from, skip = size-maxTranscript, true
	}
	data := make([]byte, min(livePiece, size-from))
	n, err := f.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	data = data[:n]
	if skip {
		_, rest, _ := bytes.Cut(data, []byte{'\n'})
		from += int64(len(data) - len(rest))
		data = rest
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if whole == 0 {
		return false, nil // it is being written
	}
	m.Transcript, m.TranscriptAt = data[:whole], from
	l.at = from + int64(whole)
	return l.at < size, nil
}

// saying is what a model is writing.
func (l *live) saying() *tendv1.HealWords {
	var w healer.Words
	data, err := atomicfile.Read(filepath.Join(l.dir, healer.WordsFile), 8*healer.MaxWords)
	if err != nil || json.Unmarshal(data, &w) != nil {
		return &tendv1.HealWords{}
	}
	return &tendv1.HealWords{Text: w.Text, Tool: w.Tool}
}
