package tend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// Files are the files of a sandbox or of the server's machine, for one user. Paths that
// are not absolute start at the sandbox's directory, and on the machine at the user's
// home. No link inside leads out of a sandbox. The first operation creates or starts the
// sandbox, as a process would.
//
// Errors match [fs.ErrNotExist], [fs.ErrExist] and [fs.ErrPermission].
type Files struct {
	of   func(context.Context) (*Client, error)
	user string
}

// Files returns the files of the sandbox, for its own user.
func (s *Sandbox) Files() *Files { return &Files{of: s.Client} }

// Files returns the files of the server's machine, for the daemon's user. Those of the
// client of a sandbox are the sandbox's.
func (c *Client) Files() *Files {
	return &Files{of: func(context.Context) (*Client, error) { return c, nil }}
}

// As returns the same files for another user: new files belong to that user, and each
// operation has only that user's rights.
func (f *Files) As(user string) *Files { return &Files{f.of, user} }

// FileType is the type of a file.
type FileType uint8

const (
	FileOther FileType = iota // a device, FIFO, socket, or a link that leads nowhere
	FileRegular
	FileDir
)

func (t FileType) String() string { return word("unknown", t, "other", "file", "dir") }

// FileEntry describes a path. For a symbolic link, Type and Mode are those of its
// target.
type FileEntry struct {
	Name, Path   string // Path is absolute
	Type         FileType
	Size         int64
	Mode         fs.FileMode // permission bits
	Owner, Group string
	Modified     time.Time
	// Target is the final target of a symbolic link; "": not a link.
	Target string
}

func toFileEntry(m *tendv1.FileEntry) FileEntry {
	return FileEntry{
		Name: m.GetName(), Path: m.GetPath(), Type: FileType(min(uint32(m.GetType()), 255)), Size: m.GetSize(),
		Mode:  fs.FileMode(m.GetMode()).Perm(),
		Owner: m.GetOwner(), Group: m.GetGroup(), Modified: tendpb.ToTime(m.GetModified()), Target: m.GetTarget(),
	}
}

// fileError is an error about a file, by the names of package fs, too.
type fileError struct{ err, as error }

func (e *fileError) Error() string   { return e.err.Error() }
func (e *fileError) Unwrap() []error { return []error{e.err, e.as} }

func ofFile(err error) error {
	for _, known := range []struct{ is, as error }{{process.ErrNotFound, fs.ErrNotExist}, {process.ErrExists, fs.ErrExist},
		{process.ErrPermission, fs.ErrPermission}} {
		if errors.Is(err, known.is) {
			return &fileError{err, known.as}
		}
	}
	return err
}

// do runs an operation on the files.
func (f *Files) do(ctx context.Context, op func(c *Client) error) error {
	c, err := f.of(ctx)
	if err != nil {
		return err
	}
	err = op(c)
	if ours, ok := errors.AsType[*callerError](err); ok {
		return ours.err
	}
	return ofFile(knownCall(err, "is"))
}

// Stat describes a path. It does not follow a symbolic link in the last element.
func (f *Files) Stat(ctx context.Context, path string) (e FileEntry, err error) {
	req := &tendv1.StatFileRequest{Path: path, User: f.user}
	err = f.do(ctx, func(c *Client) error {
		return c.call(ctx, unary(c.files.StatFile, req, func(m *tendv1.StatFileResponse) error {
			e = toFileEntry(m.GetEntry())
			return nil
		}))
	})
	return e, err
}

// Exists reports whether there is something at a path; a symbolic link counts wherever it
// leads.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	_, err := f.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// FileChange is what has become of a path, relative to the directory that was asked for.
type FileChange struct {
	Path string
	Kind FileChangeKind
}

// FileChangeKind says what that is.
type FileChangeKind string

const (
	ChangeGone    FileChangeKind = "gone"    // removed with its content; what has replaced it follows
	ChangeFile    FileChangeKind = "file"    // a file that is new, or has another content, mode or owner
	ChangeDir     FileChangeKind = "dir"     // a directory that is new, or in which something has changed
	ChangeSpecial FileChangeKind = "special" // a link, or another kind of file
)

// Changes tells what programs in the sandbox have changed in a share that is a copy: below an
// absolute path of a directory, except in directories of the names in skip. Error:
// process.ErrLimit for more than 10,000.
func (f *Files) Changes(ctx context.Context, dir string, skip ...string) (all []FileChange, err error) {
	req := &tendv1.ListFilesRequest{Path: dir, Changed: true, Skip: skip}
	err = f.do(ctx, func(c *Client) error {
		return c.call(ctx, unary(c.files.ListFiles, req, func(m *tendv1.ListFilesResponse) error {
			all = nil
			for _, one := range m.GetEntries() {
				all = append(all, FileChange{one.GetPath(), FileChangeKind(one.GetChange())})
			}
			return nil
		}))
	})
	return all, err
}

// FileBefore is a file before a repair or a chat changed it.
type FileBefore struct {
	// ChangedBy is the episode that changed the file, or CHAT/TURN of a chat; "": no known
	// one did. Service is its service, At its time.
	ChangedBy, Service string
	At                 time.Time
	// Existed: the file existed. Content is its content, text of at most 2 MiB; if it is
	// missing, Why says why.
	Existed bool
	Content []byte
	Why     string
}

// Before returns the earlier content of a readable file: its content before the newest
// repair, or chat turn, that changed it and was not taken back, as far as it is stored.
func (f *Files) Before(ctx context.Context, path string) (b FileBefore, err error) {
	req := &tendv1.FileBeforeRequest{Path: path, User: f.user}
	err = f.do(ctx, func(c *Client) error {
		return c.call(ctx, unary(c.files.FileBefore, req, func(m *tendv1.FileBeforeResponse) error {
			b = FileBefore{
				ChangedBy: tendpb.CleanName(m.GetChangedBy()), Service: tendpb.CleanName(m.GetService()), Existed: m.GetExisted(),
				Content: m.GetContent(), Why: tendpb.CleanName(m.GetWhy()), At: tendpb.ToTime(m.GetAt()),
			}
			return nil
		}))
	})
	return b, err
}

// List lists a directory in lexical order, each directory before its entries, down to
// depth levels; 0 means 1.
func (f *Files) List(ctx context.Context, path string, depth int) (all []FileEntry, err error) {
	req := &tendv1.ListFilesRequest{Path: path, User: f.user, Depth: uint32(max(0, min(depth, 1<<20)))}
	err = f.do(ctx, func(c *Client) error {
		return c.call(ctx, unary(c.files.ListFiles, req, func(m *tendv1.ListFilesResponse) error {
			all = mapped(m.GetEntries(), toFileEntry)
			return nil
		}))
	})
	return all, err
}

// Read copies a file to w, from its first byte to its last. After a lost connection
// reading resumes where it stopped, unless the size of the file has changed.
func (f *Files) Read(ctx context.Context, path string, w io.Writer) (n int64, err error) {
	size := int64(-1)
	once := func(c *Client, a *attempts) error {
		first := true
		req := &tendv1.ReadFileRequest{Path: path, User: f.user, Offset: n}
		return receive(ctx, c, c.files.ReadFile, req, nil, func(m *tendv1.ReadFileResponse) error {
			if first && size >= 0 && size != m.GetSize() {
				return fmt.Errorf("%s was changed while it was read", path)
			}
			if first {
				first, size = false, m.GetSize()
			}
			k, err := w.Write(m.GetData())
			if n += int64(k); err != nil {
				return &callerError{err}
			}
			a.progress()
			return nil
		})
	}
	err = f.do(ctx, func(c *Client) error {
		return c.repeat(ctx, "read "+path, never, func(a *attempts) error { return once(c, a) })
	})
	return n, err
}

// callerError is an error of the caller's reader or writer, which no other connection changes.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

// ReadFile returns the content of a file.
func (f *Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	var b bytes.Buffer
	_, err := f.Read(ctx, path, &b)
	return b.Bytes(), err
}

// writePiece is how much of a file one message has.
const writePiece = 256 << 10

// Write creates or replaces a file with the content of r, and creates its parent
// directories. An existing file keeps its mode. A write that fails in its first 64 KiB
// changes nothing; a longer one leaves the bytes that have arrived. If the connection
// is lost, the write is repeated if r is an [io.Seeker].
func (f *Files) Write(ctx context.Context, path string, r io.Reader) (e FileEntry, err error) {
	seeker, again := r.(io.Seeker)
	var from int64
	if again {
		if from, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // a pipe
		}
	}
	begun := false
	once := func(c *Client) error {
		if begun {
			if _, err := seeker.Seek(from, io.SeekStart); err != nil {
				return err
			}
		}
		begun = true
		ctx, cancel := c.stream(ctx)
		defer cancel(nil)
		stream := c.files.WriteFile(ctx)
		m := &tendv1.WriteFileRequest{Path: path, User: f.user}
		piece := make([]byte, writePiece)
		for {
			n, rerr := io.ReadFull(r, piece)
			m.Data = piece[:n]
			end := errors.Is(rerr, io.EOF) || errors.Is(rerr, io.ErrUnexpectedEOF)
			if rerr != nil && !end {
				cancel(rerr) // not the end of the file
				_, _ = stream.CloseAndReceive()
				return &callerError{rerr}
			}
			if err := stream.Send(m); err != nil {
				break // the answer says why
			}
			m.Path, m.User = "", ""
			if end {
				break
			}
		}
		resp, err := stream.CloseAndReceive()
		if err != nil {
			return causeOf(ctx, err)
		}
		e = toFileEntry(resp.Msg.GetEntry())
		return nil
	}
	err = f.do(ctx, func(c *Client) error {
		last := func(error) bool { return begun && !again }
		return c.repeat(ctx, "write "+path, last, func(*attempts) error { return once(c) })
	})
	return e, err
}

// WriteFile is like Write, with the content in data.
func (f *Files) WriteFile(ctx context.Context, path string, data []byte) error {
	_, err := f.Write(ctx, path, bytes.NewReader(data))
	return err
}

// Mkdir creates a directory and its parents. If it exists, the error is [fs.ErrExist].
func (f *Files) Mkdir(ctx context.Context, path string) error {
	return f.do(ctx, func(c *Client) error {
		return c.once(ctx, unary(c.files.MakeDir, &tendv1.MakeDirRequest{Path: path, User: f.user}, nil))
	})
}

// Move renames a file or directory. The call is not repeated if the answer is lost.
func (f *Files) Move(ctx context.Context, source, destination string) error {
	req := &tendv1.MoveFileRequest{Source: source, Destination: destination, User: f.user}
	return f.do(ctx, func(c *Client) error { return c.once(ctx, unary(c.files.MoveFile, req, nil)) })
}

// Remove removes a file, or a directory with its content. If it does not exist, Remove
// does nothing.
func (f *Files) Remove(ctx context.Context, path string) error {
	return gone(f.do(ctx, func(c *Client) error {
		return c.call(ctx, unary(c.files.RemoveFile, &tendv1.RemoveFileRequest{Path: path, User: f.user}, nil))
	}))
}
