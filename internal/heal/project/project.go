package project

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/tend-run/tend/internal/heal/agent"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/git"
	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/heal/view"
)

// Config says which project, and what of it is whose. Paths are those of where the project
// is.
type Config struct {
	// ID of the episode: letters, digits and "-".
	ID   string `json:"id"`
	Root string `json:"root"` // absolute path of the project
	Cwd  string `json:"cwd"`  // of the service
	// Env of the service; PATH is that of commands.
	Env  map[string]string `json:"env,omitempty"`
	Path string            `json:"path,omitempty"`
	// Dir is a private directory for checkpoints; "": one below Root, in .tend/heal.
	Dir string `json:"dir,omitempty"`
	// Protected and Data are globs: what must not be changed, and what the service writes
	// itself. Files are protected besides.
	Protected []string `json:"protected,omitempty"`
	Data      []string `json:"data,omitempty"`
	Files     []string `json:"files,omitempty"`
	// StateDir of the daemon is no part of the project. Hide is what no command sees.
	StateDir string   `json:"state_dir,omitempty"`
	Hide     []string `json:"hide,omitempty"`
	// Home is the directory of a sandbox: the project may be in it though the daemon's own is
	// around.
	Home string `json:"home,omitempty"`
	// Copied: the program of the process that works on it is a copy that nobody needs any more.
	Copied bool `json:"copied,omitempty"`
	// Redact hides secrets. nil: one of its own, with those of Env and of the project.
	Redact *guard.Redactor `json:"-"`
}

// Opened is what is found of a project that is opened.
type Opened struct {
	Root string `json:"root"` // without links
	// Secrets are its files of variables, and all versions that secret files had in git.
	Secrets []git.Version `json:"secrets,omitempty"`
	Notes   []string      `json:"notes,omitempty"` // for people
}

// Reviewed is what was changed since a checkpoint.
type Reviewed struct {
	Diff string
	// Files are the changes with all that rules look at.
	Files []agent.FileDiff
	// Denied says which change may not be; "": all may.
	Denied string
}

// Committed is what a commit holds.
type Committed struct {
	checkpoint.Committed
	// None: there is no checkpoint any more.
	None bool
	// Kept are copies of what was not committed before a command changed it.
	Kept []checkpoint.Kept
	// Undo is what was changed, with what it was before: what it can be taken back by if there
	// is no commit. NoUndo is why there is none.
	Undo   *checkpoint.Undo
	NoUndo string
}

// RolledBack is what was taken back.
type RolledBack struct {
	checkpoint.Restored
	// None: there is no checkpoint any more.
	None bool
	Diff string // of what was tried
}

// maxAbove bounds the directories in which a command may find its repository.
const maxAbove = 100

// CommandEnv are the variables of such a command besides those of the service: the project may
// be another user's than the command's. Of the repositories that it could be in, the command
// sees at most the one that package git may use.
func CommandEnv(root string) map[string]string {
	env, n := map[string]string{}, 0
	for dir := root; ; dir = path.Dir(dir) {
		env[fmt.Sprintf("GIT_CONFIG_KEY_%d", n)], env[fmt.Sprintf("GIT_CONFIG_VALUE_%d", n)] = "safe.directory", dir
		if n++; dir == path.Dir(dir) || n == maxAbove {
			env["GIT_CONFIG_COUNT"] = strconv.Itoa(n)
			return env
		}
	}
}

// Shown is what a command of a model sees of a project and around it.
type Shown struct {
	Hide []string `json:"hide,omitempty"` // paths below the root that it does not
	Show []string `json:"show,omitempty"` // absolute paths of the machine that it does
}

// Admitted are changes that may be made.
type Admitted struct {
	Changes []view.Change `json:"changes,omitempty"`
	// Same are paths that are as they were.
	Same []string `json:"same,omitempty"`
	Said string   `json:"said,omitempty"` // for the model: what was left, and why
}

// Project is one that is repaired. Its methods are called one at a time. A remedy that
// changes files has a checkpoint, of which there is at most one at a time; without one Mark
// and Absorb do nothing.
//
// Errors of all methods: [BrokenError] where it is lost, beside those of the packages that do
// the work, of which another process gives the text alone, and [fs.ErrNotExist].
type Project interface {
	// Root is the path of the project, without links.
	Root() string
	// Match returns the plans of playbooks that fit. Root of the evidence is filled in.
	Match(ctx context.Context, e playbook.Evidence) ([]playbook.Plan, error)

	// Files are read and changed as [guard.Guard] does it.
	Files
	// Where is the path that a name of a file leads to, if a person may allow to read or change
	// what is there: absolute, and without links. Allowed are the files at such paths.
	Where(ctx context.Context, name string) (string, error)
	Allowed() Files
	Search(ctx context.Context, re, glob string, most int) ([]guard.Hit, bool, error)
	SetEnv(ctx context.Context, file, name, value string) error
	// CheckEnv says why SetEnv would not.
	CheckEnv(ctx context.Context, file, name, value string) error

	// Take takes the checkpoint of a remedy, or opens the one that was taken.
	Take(ctx context.Context, try int) error
	// Mark says that what has changed is the healer's, Absorb that it is not.
	Mark(ctx context.Context) error
	Absorb(ctx context.Context) error
	// Changed are the paths that the healer has changed.
	Changed(ctx context.Context) ([]string, error)
	// Review looks at what was changed.
	Review(ctx context.Context, try int) (Reviewed, error)
	// Commit commits what was changed; nil: only what was kept is told.
	Commit(ctx context.Context, try int, c *checkpoint.Commit) (Committed, error)
	// Rollback takes back what was tried. absorb: what has changed since is not the healer's.
	Rollback(ctx context.Context, try int, absorb bool) (RolledBack, error)
	// TakeBack takes back a repair whose checkpoint is gone, or checks whether it could be; of
	// what it is told, the paths and the ID are those of this project.
	TakeBack(ctx context.Context, b checkpoint.Back, check bool) (checkpoint.TakenBack, error)
	// Drop removes the checkpoint of a remedy, and what it has moved aside.
	Drop(ctx context.Context, try int) error

	// MoveAside moves a directory away, until Rollback or Drop.
	MoveAside(ctx context.Context, try int, dir string) error
	// Stage makes the directories [Staged] of a remedy: for what an install in a view makes, each by the
	// escape of its path, and for its home. Swap puts one of what was made into the project, as a
	// whole, until Rollback or Drop.
	Stage(ctx context.Context, try int) error
	Swap(ctx context.Context, try int, dir string) error
	// CheckOut makes a file that is absent as the index of git has it.
	CheckOut(ctx context.Context, name string) error
	// Absent says why a path is not absent.
	Absent(ctx context.Context, name string) error
	// Truncate keeps the last bytes of a log, in place.
	Truncate(ctx context.Context, name string, keep int64) (string, error)
	// EndHolder ends what listens on a port, if anything may be ended there; else it says
	// what that is. What is in spared, by pid, is left alone, with all that it has started.
	EndHolder(ctx context.Context, port int, spared []int, anything bool) (string, error)

	// Shown says what a command of a model sees.
	Shown(ctx context.Context) (Shown, error)
	// Admit says which changes of a command in a view may be made, by the rules of an edit and
	// those that lose nothing that nobody has committed.
	Admit(ctx context.Context, changes []view.Change) (Admitted, error)
	// Preview is what Review would find of these changes.
	Preview(ctx context.Context, changes []view.Change) ([]agent.FileDiff, error)
	// Editable is the path of a file that may be changed, or says why it may not.
	Editable(ctx context.Context, name string) (string, error)
	// Apply makes changes. If somebody else has changed one of the files since the checkpoint
	// it changes nothing.
	Apply(ctx context.Context, changes []view.Change) error

	// Close releases it. What is on the disk stays.
	Close() error
}

// Files are read and changed.
type Files interface {
	ReadFile(ctx context.Context, name string, off, most int64) ([]byte, int64, error)
	WriteFile(ctx context.Context, name string, data []byte) error
	List(ctx context.Context, dir string, most int) ([]guard.Entry, bool, error)
}

// ErrNoCommands: where there is no view of the project, no command is run.
var ErrNoCommands = errors.New("commands cannot be run here, since there can be no view of the project; read, search and edit files")

// BrokenError says that the process in which a project is worked on has ended, or does not
// answer. What was under way may have been done, or not, or half.
type BrokenError struct{ Why string }

func (e *BrokenError) Error() string {
	return "the process that works on the project is lost: " + e.Why
}
