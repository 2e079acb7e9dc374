package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

type sandboxCpCmd struct {
	User string `short:"u" placeholder:"USER" help:"Read or write as this user inside."`
	Max  string `default:"64GiB" placeholder:"SIZE" help:"Copy at most this much out of the sandbox. Default: 64GiB."`

	Source string `arg:"" complete:"files" help:"PATH, or SANDBOX:PATH; - is a tar stream on stdin."`
	Target string `arg:"" complete:"files" help:"PATH, or SANDBOX:PATH; - is a tar stream on stdout."`
}

// copyFacts is what was copied, as JSON.
type copyFacts struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Skipped are devices, sockets and the like, and links that lead out of what was
	// copied.
	Skipped int64 `json:"skipped"`
}

// splitPath reads SANDBOX:PATH; sandbox is "" for a path here. A path here that has a colon
// begins with "/" or ".".
func splitPath(arg string) (sandbox, name string) {
	before, after, ok := strings.Cut(arg, ":")
	if !ok || before == "" || strings.ContainsAny(before[:1], `/.\~`) || strings.ContainsAny(before, `/\`) ||
		runtime.GOOS == "windows" && len(before) == 1 {
		return "", arg
	}
	return before, after
}

func (c *sandboxCpCmd) Run(ctx context.Context, inv *invocation) error {
	from, source := splitPath(c.Source)
	to, target := splitPath(c.Target)
	switch {
	case from == "" && to == "":
		return usageError("neither path is in a sandbox; write SANDBOX:PATH for one of them")
	case from != "" && to != "":
		return usageError("both paths are in sandboxes; copy to this machine first, or pipe: tend sandbox cp A:/dir - | tend sandbox cp - B:/dir")
	case strings.ContainsRune(source+target, 0):
		return usageError("a path has a NUL byte")
	}
	most, err := parseSize(c.Max)
	if err != nil {
		return usageError(fmt.Sprintf("--max %s: %v", c.Max, err))
	}
	var up *packer
	if to != "" {
		if up, err = newPacker(inv.in, source); err != nil {
			return err
		}
		defer up.close()
		if dir, err := inv.stateDir(); err == nil {
			if info, err := os.Stat(dir); err == nil {
				up.omit = info
			}
		}
	} else if _, terminal := terminalOf(inv.out); target == "-" && terminal {
		return usageError("a tar stream is not for a terminal; send it to a file or a program")
	}
	inv.sandbox = from + to
	d, err := inv.connectMachine(ctx)
	if err != nil {
		return err
	}
	if d, err = inv.within(ctx, d, true); err != nil {
		return err
	}
	var facts copyFacts
	bar := inv.fetching("copy "+c.Source, false)
	if up != nil {
		facts, err = c.upload(ctx, d, up, inside(target), bar)
	} else {
		facts, err = c.download(ctx, inv, d, inside(source), target, most, bar)
	}
	bar.end()
	if err != nil {
		return about(inv.sandbox, err)
	}
	if up != nil && up.omitted {
		inv.note("the daemon's own directory was left out: what is copied would be in it")
	}
	if facts.Skipped > 0 {
		inv.note("%d entries were left out: devices, sockets, and links that lead out of what is copied", facts.Skipped)
	}
	if inv.flags.JSON && target != "-" {
		return printJSON(inv.out, facts)
	}
	return nil
}

// inside is a path as the programs of the sandbox get it: never an option.
func inside(name string) string {
	if name == "" || name[0] != '/' {
		return "./" + name
	}
	return name
}

// The scripts below run in the sandbox. What they say on stderr is the error.

// readScript writes the archive of $1: of a directory what is in it, of a file the file
// alone.
const readScript = `p=$1
if [ ! -e "$p" ]; then echo "$p: no such file or directory" >&2; exit 66; fi
if ! command -v tar >/dev/null; then echo "there is no tar in this sandbox, which cp needs" >&2; exit 67; fi
if [ -d "$p" ]; then cd -- "$p" && exec tar -cf - .; exit 66; fi
cd -- "$(dirname -- "$p")" && exec tar -chf - "./$(basename -- "$p")"`

// writeScript unpacks an archive: $1 is the destination, $2 the name that the source has,
// "" for what is in it, $3 dir, file or tar, and $4 the name of the file in the archive.
const writeScript = `d=$1 n=$2 k=$3 x=$4
if ! command -v tar >/dev/null; then echo "there is no tar in this sandbox, which cp needs" >&2; exit 67; fi
if [ -d "$d" ]; then cd -- "$d" || exit 66; as=$n
else
  case $d in */)
    if [ "$k" != dir ]; then echo "$d: no such directory" >&2; exit 66; fi;;
  esac
  if [ "$k" = tar ]; then echo "$d: no such directory" >&2; exit 66; fi
  p=$(dirname -- "$d")
  if [ ! -d "$p" ]; then echo "$p: no such directory" >&2; exit 66; fi
  as=$(basename -- "$d"); cd -- "$p" || exit 66
fi
case $k in
tar) exec tar -xof -;;
dir) if [ -n "$as" ]; then mkdir -p "./$as" && cd "./$as" || exit 66; fi; exec tar -xof -;;
esac
if [ -d "./$as" ]; then echo "$as: it is a directory" >&2; exit 66; fi
tar -xof - && mv -f "./$x" "./$as" && exit 0
s=$?; rm -f "./$x"; exit "$s"`

// The output of readScript waits for its reader, who frees what it has read.
const (
	readBuffer = 32 << 20
	freeEvery  = 8 << 20
	// abandoned is how long the script waits for a reader that is gone, and how long what
	// it has written is kept for one.
	abandoned = 2 * time.Minute
)

func (c *sandboxCpCmd) command(script string, args ...string) tend.Cmd {
	cmd := tend.Command("sh", append([]string{"-c", script, "tend-cp"}, args...)...)
	cmd.User, cmd.Tag = c.User, "tend-cp"
	cmd.Retention = process.Retention{Limit: readBuffer, Policy: process.Block, TTL: abandoned}
	return cmd
}

// letGo ends a script that is not needed any more, and forgets it.
func letGo(ctx context.Context, p *tend.Process) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTimeout)
	defer cancel()
	_, _ = p.Kill(ctx) // it has ended, most often; and it does not outlive its Retention
	_ = p.Raw().Remove(ctx)
	p.Close()
}

// verdict waits for the end of a script, and returns what it said if it failed.
func verdict(ctx context.Context, p *tend.Process) error {
	said, err := io.ReadAll(io.LimitReader(p.Stderr(), 4<<10))
	if err != nil {
		return err
	}
	res, err := p.Raw().Wait(ctx, process.Until{})
	if err != nil {
		return err
	}
	switch text := strings.TrimSpace(string(said)); {
	case res.Exit == nil || res.Exit.Lost():
		return errors.New("it is unknown whether everything was copied: the daemon did not see the end of the copying process")
	case res.Exit.ShellStatus() == 0:
		return nil
	case text != "":
		return errors.New(text)
	default:
		return fmt.Errorf("tar in the sandbox ended with %d", res.Exit.ShellStatus())
	}
}

func (c *sandboxCpCmd) upload(ctx context.Context, d *daemon, up *packer, target string, bar *bar) (copyFacts, error) {
	cmd := c.command(writeScript, target, up.name, up.kind, up.aside)
	cmd.StdinPipe = true
	p, err := d.Spawn(ctx, cmd)
	if err != nil {
		return copyFacts{}, err
	}
	defer letGo(ctx, p)
	w := bufio.NewWriterSize(&counted{bar: bar, Writer: &contextWriter{ctx, p.Stdin()}, total: sizeOfFile(up.file)}, 256<<10)
	packed := up.pack(ctx, w)
	if packed == nil {
		packed = w.Flush()
	}
	early := errors.Is(packed, process.ErrExited) || errors.Is(packed, process.ErrStdinClosed) || errors.Is(packed, process.ErrBrokenPipe)
	if packed != nil && !early { // a half archive must not look whole
		return up.facts, packed
	}
	if err := p.Stdin().CloseContext(ctx); err != nil && !errors.Is(err, process.ErrExited) && !errors.Is(err, process.ErrStdinClosed) {
		return up.facts, err
	}
	return up.facts, verdict(ctx, p)
}

// contextWriter writes to the input of a process until a context ends.
type contextWriter struct {
	ctx context.Context
	in  *tend.Input
}

func (w *contextWriter) Write(b []byte) (int, error) { return w.in.WriteContext(w.ctx, b) }

func (c *sandboxCpCmd) download(ctx context.Context, inv *invocation, d *daemon, source, target string, most int64,
	bar *bar) (copyFacts, error) {
	cmd := c.command(readScript, source)
	cmd.KillWithoutReaders = abandoned
	p, err := d.Spawn(ctx, cmd)
	if err != nil {
		return copyFacts{}, err
	}
	defer letGo(ctx, p)
	stop := context.AfterFunc(ctx, func() { p.Stdout().Close() })
	defer stop()
	in := &counted{bar: bar, Reader: &freeing{ctx: ctx, p: p}}
	var facts copyFacts
	if target == "-" {
		facts.Bytes, err = io.Copy(inv.out, in)
	} else {
		u := &unpacker{target: filepath.FromSlash(target), base: baseOf(source), most: most}
		err = u.unpack(bufio.NewReaderSize(in, 256<<10))
		facts = u.facts
	}
	if ctx.Err() != nil {
		return facts, ctx.Err()
	}
	if err != nil && !errors.Is(err, errNoArchive) {
		return facts, err
	}
	if said := verdict(ctx, p); said != nil || err == nil {
		return facts, said
	}
	return facts, err
}

// baseOf is the name by which a path is copied into a directory; "": what is in it is.
func baseOf(name string) string {
	if strings.HasSuffix(name, "/.") || name == "./" {
		return ""
	}
	switch base := path.Base(path.Clean(name)); base {
	case ".", "..", "/":
		return ""
	default:
		return base
	}
}

// freeing reads the output of a process and frees what it has read.
type freeing struct {
	ctx   context.Context // of the copy, which is the life of this
	p     *tend.Process
	freed int64
}

func (f *freeing) Read(b []byte) (int, error) {
	out := f.p.Stdout()
	if at := out.Offset(); at-f.freed >= freeEvery {
		if err := f.p.Raw().Trim(f.ctx, process.Stdout, at); err != nil && !errors.Is(err, process.ErrExited) {
			return 0, err
		}
		f.freed = at
	}
	return out.Read(b)
}

// isDirectory reports whether there is a directory of that name here.
func isDirectory(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
