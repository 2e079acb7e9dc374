package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/tend-run/tend/internal/core/container"
)

// Volumer is an optional ability of a [Driver]: directories that outlive sandboxes, and that
// several sandboxes have at a time (Spec.Volumes).
type Volumer interface {
	// CreateVolume makes an empty one. Errors: *InvalidError, ErrVolumeExists, ErrLimit.
	CreateVolume(ctx context.Context, name string) (Volume, error)
	// Volumes returns all, oldest first.
	Volumes(ctx context.Context) ([]Volume, error)
	// GetVolume finds one by its ID. ErrNoVolume.
	GetVolume(ctx context.Context, id VolumeID) (Volume, error)
	// DeleteVolume removes it with its files. Errors: ErrNoVolume; ErrInUse while a sandbox
	// has it, also one that is paused or stopped.
	DeleteVolume(ctx context.Context, id VolumeID) error
	// VolumeFiles opens its files; the caller closes them. ErrNoVolume.
	VolumeFiles(ctx context.Context, id VolumeID) (VolumeFiles, error)
}

var (
	// ErrNoVolume: there is no volume of that ID or name.
	ErrNoVolume = errors.New("no such volume")
	// ErrVolumeExists: another volume has the name.
	ErrVolumeExists = errors.New("the name is taken by another volume")
)

// MaxVolumes is how many one sandbox may have.
const MaxVolumes = 16

// VolumeID identifies one volume and is never reused: a UUID in its usual form.
type VolumeID string

// NewVolumeID returns a random VolumeID (version 4).
func NewVolumeID() VolumeID { return VolumeID(container.NewUUID()) }

// Volume is a directory that sandboxes mount.
type Volume struct {
	ID      VolumeID
	Name    string // unique; never changes
	Created time.Time
	Disk    int64 // bytes that it may have; 0: no limit
}

// VolumeMount is a volume in a sandbox, which may write to it.
type VolumeMount struct {
	// Name of the volume.
	Name string
	// Target inside, absolute; it is made if it is missing.
	Target string
}

// CheckVolumeName returns an [*InvalidError] if a name is invalid, or nil: 1 to MaxName
// letters, digits, '_' or '-'.
func CheckVolumeName(name string) error {
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			continue
		}
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("has %q at %d; letters, digits, '_' and '-' are allowed", c, i)}
	}
	if name == "" || len(name) > MaxName {
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed", len(name), MaxName)}
	}
	return nil
}

func checkVolumes(mounts []VolumeMount) error {
	if len(mounts) > MaxVolumes {
		return &InvalidError{Field: "volumes", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(mounts), MaxVolumes)}
	}
	used := map[string]bool{}
	for i, m := range mounts {
		field := fmt.Sprintf("volumes[%d]", i)
		if err := CheckVolumeName(m.Name); err != nil {
			return &InvalidError{Field: field + ".name", Reason: fmt.Sprintf("is %.100q, which no volume has", m.Name)}
		}
		if !cleanPath(m.Target) {
			return &InvalidError{Field: field + ".path",
				Reason: fmt.Sprintf("is %.200q; an absolute path without \"..\" of at most %d bytes, other than /, is needed", m.Target, MaxPath)}
		}
		if used[m.Target] {
			return &InvalidError{Field: field + ".path", Reason: fmt.Sprintf("is %.200q, as that of another one", m.Target)}
		}
		used[m.Target] = true
	}
	return nil
}

// VolumeFiles are the files of a volume for a caller outside of sandboxes. Paths start at the
// volume, with '/' or without. Links are followed inside of it alone: one that leads out, or is
// absolute, is files.ErrPermission. Programs may change everything at any moment. Errors are
// *files.PathError, and *InvalidError for an argument.
type VolumeFiles interface {
	// Stat does not follow a last link.
	Stat(path string) (VolumeEntry, error)
	// List returns what is in a directory, and in those below it up to a depth of 1 to
	// MaxVolumeDepth. More than MaxVolumeEntries are an *InvalidError.
	List(ctx context.Context, path string, depth int) ([]VolumeEntry, error)
	// Open opens a regular file.
	Open(path string) (io.ReadSeekCloser, fs.FileInfo, error)
	// Write writes a file as a whole: programs see the old one or the new one. force: it takes the
	// place of a file or link, and missing parents are made.
	Write(path string, r io.Reader, a VolumeAttr, force bool) (VolumeEntry, error)
	// Mkdir makes a directory. force: it may be there, and missing parents are made.
	Mkdir(path string, a VolumeAttr, force bool) (VolumeEntry, error)
	// Change changes owner and mode, which are not nil, of what a path leads to.
	Change(path string, a VolumeAttr) (VolumeEntry, error)
	// Remove removes a file, or a directory with all that is in it, but not the volume.
	Remove(path string) error
	Close() error
}

// Limits of a [VolumeFiles]'s List.
const (
	MaxVolumeDepth   = 10
	MaxVolumeEntries = 20_000
)

// VolumeAttr are the owner and the mode of what is made or changed; nil is the default, or no
// change. Ids are those of inside, 0 to 65535. The mode has 9 bits.
type VolumeAttr struct{ UID, GID, Mode *uint32 }

// VolumeEntry describes a path in a volume.
type VolumeEntry struct {
	Name, Path string
	Info       fs.FileInfo
	UID, GID   uint32 // as inside
	Target     string // of a symbolic link
	// Accessed is when it was read last, and Changed when anything about it changed.
	Accessed, Changed time.Time
}
