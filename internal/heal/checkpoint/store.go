package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// store keeps content in the private directory, by its sum.
func (p *Point) store(sum string, data []byte) error {
	dir := filepath.Join(p.path(StoreDir), sum[:2])
	path := filepath.Join(dir, sum)
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.File(path, data, 0o600)
}

// content returns that of an entry that is held.
func (p *Point) content(ctx context.Context, e *entry) ([]byte, error) {
	data, err := atomicfile.Read(filepath.Join(p.path(StoreDir), e.Sum[:2], e.Sum), maxFile)
	if errors.Is(err, fs.ErrNotExist) && p.git != nil && e.Oid != "" {
		data, err = p.git.read(ctx, e.Oid)
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != e.Sum {
		return nil, errors.New("what the checkpoint holds of it is damaged")
	}
	return data, nil
}

// takeGit writes the content that git does not have to git, in one pack, with a commit
// that holds all.
func (p *Point) takeGit(ctx context.Context) (found tree, err error) {
	if p.ignored, err = p.git.ignored(ctx); err != nil {
		return nil, err
	}
	index, err := p.git.index(ctx)
	if err != nil {
		return nil, err
	}
	p.tracked = map[name]bool{}
	for path := range index {
		if rel, ok := strings.CutPrefix(path, p.git.prefix); ok {
			p.tracked[name(rel)] = true
		}
	}
	ask, err := p.git.pipe(ctx, "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ask.close()) }()
	in, err := p.git.pipe(ctx, "fast-import", "--quiet", "--done", "--force", "--date-format=now")
	if err != nil {
		return nil, err
	}
	sent := map[string]bool{}
	var size, ignoredSize int64
	var ignored int
	found, err = p.scan(ctx, nil, func(path name, e *entry, data []byte) error {
		private := p.private(path, e)
		if e.Ignored {
			ignored++
			ignoredSize += int64(len(data))
			if len(data) > maxIgnoredFile || ignored > maxIgnored || ignoredSize > maxIgnoredAll {
				p.omit(path, "git ignores it, and it is large or one of very many")
				return nil
			}
		}
		e.Held = true
		if private {
			size += int64(len(data))
			if size > maxContent {
				return &LimitError{"bytes", maxContent}
			}
			return p.store(e.Sum, data)
		}
		if sent[e.Oid] {
			return nil
		}
		sent[e.Oid] = true
		if _, err := fmt.Fprintln(ask.in, e.Oid); err != nil {
			return err
		}
		answer, err := ask.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git cat-file: %w", err)
		}
		if strings.TrimSpace(answer) == "blob" {
			return nil
		}
		if size += int64(len(data)); size > maxContent {
			return &LimitError{"bytes", maxContent}
		}
		_, err = fmt.Fprintf(in.in, "blob\ndata %d\n%s\n", len(data), data)
		return err
	})
	if err != nil {
		in.kill()
		return nil, err
	}
	p.opts.step("scanned")
	w := bufio.NewWriter(in.in)
	message := "as it was before a repair by tend\n"
	fmt.Fprintf(w, "commit %s\ncommitter tend healer <healer@tend.invalid> now\ndata %d\n%s\n", p.ref(), len(message), message)
	for _, path := range found.sorted() {
		e := found[path]
		if e.Kind == directory || !e.Held || p.private(path, e) {
			continue
		}
		if e.Kind == link {
			fmt.Fprintf(w, "M 120000 inline %s\ndata %d\n%s\n", quotePath(p.git.prefix+string(path)), len(e.Target), e.Target)
			continue
		}
		fmt.Fprintf(w, "M %s %s %s\n", gitMode(e), e.Oid, quotePath(p.git.prefix+string(path)))
	}
	fmt.Fprint(w, "done\n")
	if err := errors.Join(w.Flush(), in.close()); err != nil {
		return nil, err
	}
	return found, nil
}

// private reports whether content is kept in the private directory while the checkpoint is
// taken: git ignores it, or its owner keeps it from the owner of the repository.
func (p *Point) private(path name, e *entry) bool {
	return e.Ignored || isEnv(path) && !p.tracked[path] || p.git.Secret(e.UID, uint32(e.Mode.Perm()))
}

func gitMode(e *entry) string {
	switch {
	case e.Kind == link:
		return "120000"
	case e.Mode&0o100 != 0:
		return "100755"
	}
	return "100644"
}

// quotePath writes a path as fast-import reads it.
func quotePath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// pipe is a git that is spoken with.
type pipe struct {
	in     io.WriteCloser
	out    *bufio.Reader
	wait   func() error
	cancel context.CancelFunc
}

func (r *repository) pipe(ctx context.Context, args ...string) (*pipe, error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := r.Command(ctx, nil, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	wait := func() error {
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("git %s: %w: %.500s", args[0], err, strings.TrimSpace(stderr.String()))
		}
		return nil
	}
	return &pipe{in: in, out: bufio.NewReader(out), wait: wait, cancel: cancel}, nil
}

// close ends the input and waits for git.
func (p *pipe) close() error {
	err := p.in.Close()
	_, _ = io.Copy(io.Discard, p.out)
	err = errors.Join(err, p.wait())
	p.cancel()
	return err
}

func (p *pipe) kill() {
	p.cancel()
	p.in.Close()
	_ = p.wait() // it was killed
}
