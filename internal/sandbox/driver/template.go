package driver

import (
	"context"
	"io"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// Templater is an optional ability of a [Driver]: it manages the templates that
// sandboxes are created from.
type Templater interface {
	// Build starts the build of a template and returns at once; [Runner].Run does the
	// steps. An existing template with that name is replaced when the build is ready, not
	// before. Errors: *InvalidError, *UnsupportedError, ErrNotFound for an unknown From,
	// ErrLimit.
	Build(ctx context.Context, spec BuildSpec) (Build, error)
	// GetBuild returns a build and the entries of its log from an index on. ErrNotFound.
	GetBuild(ctx context.Context, id BuildID, logsFrom int) (Build, []LogEntry, error)
	// Template finds a template by its name, an alias, "name:tag" or its ID.
	// ErrNotFound.
	Template(ctx context.Context, key string) (Template, error)
	// Templates returns all, oldest first.
	Templates(ctx context.Context) ([]Template, error)
	// DeleteTemplate removes the name and all its tags. Sandboxes created from it stay.
	// ErrNotFound.
	DeleteTemplate(ctx context.Context, key string) error
}

// Tagger is an optional ability of a [Templater]: several builds of one template.
type Tagger interface {
	// Tag adds tags to the build of target ("name" or "name:tag").
	Tag(ctx context.Context, target string, tags []string) (BuildID, error)
	// Untag removes tags but no build. Error: ErrNotFound.
	Untag(ctx context.Context, name string, tags []string) error
	// Tags returns the tags of a template, oldest first.
	Tags(ctx context.Context, key string) ([]Tag, error)
}

// DefaultTag is the tag of a template without a tag.
const DefaultTag = "default"

// Limits on what a [BuildSpec] may hold.
const (
	MaxSteps     = 1000
	MaxStepBytes = 1 << 20 // of all arguments together
	MaxTags      = 64
)

// BuildID identifies one build: a UUID in its usual form, as in E2B's API.
type BuildID string

// NewBuildID returns a random BuildID (version 4).
func NewBuildID() BuildID { return BuildID(container.NewUUID()) }

// BuildSpec says what to build.
type BuildSpec struct {
	// ID of the build and TemplateID are generated if they are empty.
	ID         BuildID
	TemplateID string
	// Name of the template: 1 to MaxName of [a-z0-9_-], with one '/' before it for a
	// namespace or none. Tags; none: DefaultTag.
	Name string
	Tags []string
	// Size is the default size of sandboxes created from it.
	Size Size
	// From is the base template; "": the driver's default. FromDir is a directory of this
	// machine that is the whole root; only the holder of the daemon may name one, and not
	// together with From.
	From, FromDir string
	// FromImage is an image whose files it begins with, in the place of From and FromDir. It is
	// fetched if it is not here; Pull says for whom, and may have credentials, which are
	// forgotten then.
	FromImage string
	Pull      Pull
	// Dockerfile is built in the place of From, FromDir, FromImage, Steps, Start and Ready. Pull
	// says for whom its images are.
	Dockerfile *Dockerfile
	Steps      []Step
	// AsParent: steps begin as the user of From and in its directory, or that user's
	// home; else as root and in "/", unless From has a directory. FromImage gets an account
	// "user" for that if it has none: its own user and directory count no more.
	AsParent bool
	// Start is a command that runs in each sandbox made from it, and Ready one that
	// ends with 0 when that is up. Both for a shell; "": none.
	Start, Ready string
	// Force: no step is taken from the cache.
	Force bool
	// Blob opens the tar (or tar.gz) that a Hash of a step names. fs.ErrNotExist.
	Blob func(hash string) (io.ReadCloser, error)
}

// Limits on what a [Dockerfile] may be given.
const (
	MaxBuildArgs   = 256
	MaxSecrets     = 64
	MaxSecretBytes = 500 << 10 // of one
)

// Dockerfile is the text of one, and what its build is given.
type Dockerfile struct {
	Text   string
	Target string            // the stage; "": the last
	Args   map[string]string // values of ARG
	// Secrets are files of steps by their IDs; they are in no layer, no record and no log.
	Secrets map[string][]byte
	// Context is the hash of the Blob of all files that its steps may copy; "": there are none.
	Context string
}

// Step of a build.
type Step struct {
	// Kind and Args, as E2B's SDKs send them:
	//
	//	COPY     source, destination[, user[, mode]]; the files are in the blob
	//	RUN      command line[, user]
	//	WORKDIR  directory
	//	USER     name
	//	ENV      name, value, name, value, …
	Kind string
	Args []string
	// Hash names the blob of a COPY.
	Hash string
	// Force: this step and those after it are not taken from the cache.
	Force bool
}

// BuildStatus of a build.
type BuildStatus uint8

const (
	BuildWaiting BuildStatus = iota
	BuildRunning
	BuildReady
	BuildFailed
)

func (s BuildStatus) String() string {
	return word("build", uint8(s), "waiting", "building", "ready", "error")
}

// Build is the state of a build at one moment.
type Build struct {
	ID         BuildID
	TemplateID string
	Name       string
	Tags       []string
	Status     BuildStatus
	// Reason of BuildFailed, and the step: "base", an index from 1, or "finalize".
	Reason, FailedStep string
	Created, Finished  time.Time
}

// Template is the state of a template.
type Template struct {
	ID      string
	Name    string
	Aliases []string
	Tags    []string
	// Build is the build with DefaultTag, or with the tag in the key.
	Build            BuildID
	Size             Size
	Run              RunConfig
	Start, Ready     string
	Bytes            int64
	Created, Updated time.Time
	// LastUsed is when a sandbox was last created from it, and Used how many were created.
	LastUsed time.Time
	Used     int64
}

// Tag of a template.
type Tag struct {
	Tag     string
	Build   BuildID
	Created time.Time
}
