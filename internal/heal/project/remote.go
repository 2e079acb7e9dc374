package project

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/view"
)

// endTime is how long a request that is cancelled may take to end.
const endTime = 30 * time.Second

const (
	// beatEvery is how often a process that works on a request says so.
	beatEvery = 5 * time.Second
	// maxSilent is after how many times that long one that says nothing is lost: its user
	// may have stopped it. They are counted here, so that time in which this process, too,
	// stood still is none.
	maxSilent = 24
)

// Conn leads to a process that runs [Serve].
type Conn interface {
	io.Reader
	io.Writer
	// Close ends the process, and returns when it has ended. It ends a Read and a Write that
	// are under way.
	io.Closer
}

// Remote is a project that another process works on.
type Remote struct {
	conn    Conn
	root    string
	id      int64
	answers chan answer
	failed  chan error // receives once, after the last answer
	writing sync.WaitGroup
	broken  *BrokenError
	// OnBroken is called once, when the process turns out to be lost.
	OnBroken func()
	// Still reports whether the process may stand still now, as in a sandbox that is
	// paused. nil: never.
	Still func() bool
}

var _ Project = (*Remote)(nil)

// Dial opens a project in the process that a connection leads to. The error is a
// [BrokenError], or says why the project cannot be opened. The connection is closed with the
// project, and if there is an error.
func Dial(ctx context.Context, conn Conn, c Config) (*Remote, Opened, error) {
	r := &Remote{conn: conn, answers: make(chan answer), failed: make(chan error, 1)}
	go r.read()
	opened, err := ask[Opened](ctx, r, "open", c)
	if err == nil && !path.IsAbs(opened.Root) {
		err = fmt.Errorf("%.80q is no path of a project", opened.Root)
	}
	if err != nil {
		return nil, opened, errors.Join(err, r.Close())
	}
	r.root = opened.Root
	return r, opened, nil
}

// read reads answers until the process ends.
func (r *Remote) read() {
	in := bufio.NewReaderSize(r.conn, 64<<10)
	defer close(r.answers)
	for {
		line, err := readLine(in)
		var a answer
		if err == nil && values(line) > maxValues {
			err = fmt.Errorf("an answer of more than %d values", maxValues)
		}
		if err == nil {
			err = json.Unmarshal(line, &a)
		}
		if err != nil {
			r.failed <- err
			return
		}
		r.answers <- a
	}
}

// Close implements Project.
func (r *Remote) Close() error {
	err := r.conn.Close()
	for range r.answers { // until read has ended
	}
	r.writing.Wait()
	return err
}

// Broken returns why the process is lost; nil: it is not known to be.
func (r *Remote) Broken() error {
	if r.broken == nil {
		return nil
	}
	return r.broken
}

func (r *Remote) fail(why string) error {
	if r.broken == nil {
		r.broken = &BrokenError{Why: why}
		if r.OnBroken != nil {
			r.OnBroken()
		}
	}
	return r.broken
}

// send writes a request. A process that takes none until the context ends is lost: what it
// has of the request cannot be taken back.
func (r *Remote) send(ctx context.Context, req request) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		return fmt.Errorf("it is longer than %d MiB", maxLine>>20)
	}
	wrote := make(chan error, 1)
	r.writing.Go(func() {
		_, err := r.conn.Write(append(line, '\n'))
		wrote <- err
	})
	select {
	case err := <-wrote:
		if err != nil {
			return r.fail(err.Error())
		}
		return nil
	case <-ctx.Done():
		return r.fail("it takes no requests")
	}
}

// later is a context that ends some time after another one does.
func later(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(by):
			cancel()
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel()
	}
}

// await returns the answer to the newest request.
func (r *Remote) await(ctx context.Context) (answer, error) {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for silent := 0; ; {
		select {
		case a, ok := <-r.answers:
			switch {
			case !ok:
				why := "it has ended"
				select {
				case err := <-r.failed:
					if !errors.Is(err, io.EOF) {
						why = err.Error()
					}
				default:
				}
				return a, r.fail(why)
			case a.ID == r.id:
				return a, nil
			}
			silent = 0
		case <-beat.C:
			if r.Still != nil && r.Still() {
				silent = 0
			} else if silent++; silent > maxSilent {
				return answer{}, r.fail(fmt.Sprintf("it stood still for %v, and is killed; kill -STOP does that", maxSilent*beatEvery))
			}
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// ask makes one request. One whose context ends is cancelled, and its answer awaited: nothing
// goes on behind the back of whoever asked.
func ask[R any](ctx context.Context, r *Remote, method string, args any) (out R, err error) {
	if r.broken != nil {
		return out, r.broken
	}
	if err := ctx.Err(); err != nil {
		return out, err
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return out, err
	}
	r.id++
	last, end := later(ctx, endTime)
	defer end()
	if err := r.send(last, request{ID: r.id, Method: method, Args: raw}); err != nil {
		return out, err
	}
	a, err := r.await(ctx)
	if err != nil && r.broken == nil {
		if err := r.send(last, request{ID: r.id, Method: cancel}); err != nil {
			return out, err
		}
		if _, lerr := r.await(last); lerr != nil && r.broken == nil {
			return out, errors.Join(err, r.fail("it does not answer"))
		}
		return out, err
	}
	if err != nil {
		return out, err
	}
	if a.Result != nil {
		if err := json.Unmarshal(a.Result, &out); err != nil {
			return out, r.fail("its answer: " + err.Error())
		}
	}
	if a.Error != nil {
		return out, a.Error
	}
	return out, nil
}

// do is ask for what has no result.
func (r *Remote) do(ctx context.Context, method string, args any) error {
	_, err := ask[none](ctx, r, method, args)
	return err
}

// Root implements Project.
func (r *Remote) Root() string { return r.root }

// Match implements Project.
func (r *Remote) Match(ctx context.Context, e playbook.Evidence) ([]playbook.Plan, error) {
	return ask[[]playbook.Plan](ctx, r, "match", e)
}

// ReadFile implements Project.
func (r *Remote) ReadFile(ctx context.Context, name string, off, most int64) ([]byte, int64, error) {
	out, err := ask[fileResult](ctx, r, "read", fileArgs{Name: name, Off: off, Most: most})
	return out.Data, out.Size, err
}

// WriteFile implements Project.
func (r *Remote) WriteFile(ctx context.Context, name string, data []byte) error {
	return r.do(ctx, "write", fileArgs{Name: name, Data: data})
}

// List implements Project.
func (r *Remote) List(ctx context.Context, dir string, most int) ([]guard.Entry, bool, error) {
	out, err := ask[fileResult](ctx, r, "list", fileArgs{Name: dir, Most: int64(most)})
	return out.Entries, out.More, err
}

// Search implements Project.
func (r *Remote) Search(ctx context.Context, re, glob string, most int) ([]guard.Hit, bool, error) {
	out, err := ask[fileResult](ctx, r, "search", fileArgs{Pattern: re, Glob: glob, Most: int64(most)})
	return out.Hits, out.More, err
}

// SetEnv implements Project.
func (r *Remote) SetEnv(ctx context.Context, file, name, value string) error {
	return r.do(ctx, "set_env", fileArgs{Name: file, Variable: name, Value: value})
}

// CheckEnv implements Project.
func (r *Remote) CheckEnv(ctx context.Context, file, name, value string) error {
	return r.do(ctx, "check_env", fileArgs{Name: file, Variable: name, Value: value})
}

// Take implements Project.
func (r *Remote) Take(ctx context.Context, try int) error {
	return r.do(ctx, "take", tryArgs{Try: try})
}

// Mark implements Project. It comes to its end, whatever becomes of ctx.
func (r *Remote) Mark(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	return r.do(ctx, "mark", none{})
}

// Absorb implements Project.
func (r *Remote) Absorb(ctx context.Context) error { return r.do(ctx, "absorb", none{}) }

// Changed implements Project.
func (r *Remote) Changed(ctx context.Context) ([]string, error) {
	return ask[[]string](ctx, r, "changed", none{})
}

// Review implements Project.
func (r *Remote) Review(ctx context.Context, try int) (Reviewed, error) {
	out, err := ask[Reviewed](ctx, r, "review", tryArgs{Try: try})
	out.Diff = Clipped(out.Diff)
	texts(out.Files)
	return out, err
}

func texts(all []agent.FileDiff) {
	for i := range all {
		f := &all[i]
		f.Before, f.After = text([]byte(f.Before)), text([]byte(f.After))
	}
}

// Commit implements Project.
func (r *Remote) Commit(ctx context.Context, try int, c *checkpoint.Commit) (Committed, error) {
	return ask[Committed](ctx, r, "commit", tryArgs{Try: try, Commit: c})
}

// Rollback implements Project.
func (r *Remote) Rollback(ctx context.Context, try int, absorb bool) (RolledBack, error) {
	out, err := ask[RolledBack](ctx, r, "rollback", tryArgs{Try: try, Absorb: absorb})
	out.Diff = Clipped(out.Diff)
	return out, err
}

// TakeBack implements Project.
func (r *Remote) TakeBack(ctx context.Context, b checkpoint.Back, check bool) (checkpoint.TakenBack, error) {
	out, err := ask[checkpoint.TakenBack](ctx, r, "take_back", backArgs{Back: b, Check: check})
	out.Diff = Clipped(out.Diff)
	return out, err
}

// Clipped is a diff of at most checkpoint.MaxDiff bytes, as one of our own is. Whoever the
// project belongs to may have written it.
func Clipped(diff string) string {
	if len(diff) <= checkpoint.MaxDiff {
		return diff
	}
	return strings.ToValidUTF8(diff[:checkpoint.MaxDiff-100], "") + "\n… the rest is left out: the diff is too long\n"
}

// Drop implements Project.
func (r *Remote) Drop(ctx context.Context, try int) error {
	return r.do(ctx, "drop", tryArgs{Try: try})
}

// MoveAside implements Project.
func (r *Remote) MoveAside(ctx context.Context, try int, dir string) error {
	return r.do(ctx, "move_aside", tryArgs{Try: try, Dir: dir})
}

// Stage implements Project.
func (r *Remote) Stage(ctx context.Context, try int) error {
	return r.do(ctx, "stage", tryArgs{Try: try})
}

// Swap implements Project.
func (r *Remote) Swap(ctx context.Context, try int, dir string) error {
	return r.do(ctx, "swap", tryArgs{Try: try, Dir: dir})
}

// CheckOut implements Project.
func (r *Remote) CheckOut(ctx context.Context, name string) error {
	return r.do(ctx, "check_out", fileArgs{Name: name})
}

// Absent implements Project.
func (r *Remote) Absent(ctx context.Context, name string) error {
	return r.do(ctx, "absent", fileArgs{Name: name})
}

// Truncate implements Project.
func (r *Remote) Truncate(ctx context.Context, name string, keep int64) (string, error) {
	return ask[string](ctx, r, "truncate", fileArgs{Name: name, Most: keep})
}

// EndHolder implements Project.
func (r *Remote) EndHolder(ctx context.Context, port int, spared []int, anything bool) (string, error) {
	return ask[string](ctx, r, "end_holder", endArgs{Port: port, Spared: spared, Anything: anything})
}

// Shown implements Project.
func (r *Remote) Shown(ctx context.Context) (Shown, error) {
	return ask[Shown](ctx, r, "shown", none{})
}

// Admit implements Project.
func (r *Remote) Admit(ctx context.Context, changes []view.Change) (Admitted, error) {
	return ask[Admitted](ctx, r, "admit", changes)
}

// Preview implements Project.
func (r *Remote) Preview(ctx context.Context, changes []view.Change) ([]agent.FileDiff, error) {
	all, err := ask[[]agent.FileDiff](ctx, r, "preview", changes)
	texts(all)
	return all, err
}

// Editable implements Project.
func (r *Remote) Editable(ctx context.Context, name string) (string, error) {
	return ask[string](ctx, r, "editable", name)
}

// Apply implements Project.
func (r *Remote) Apply(ctx context.Context, changes []view.Change) error {
	return r.do(ctx, "apply", changes)
}
