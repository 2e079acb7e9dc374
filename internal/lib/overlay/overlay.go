// Package overlay builds the options of overlay mounts. All code that mounts one takes
// the options from here, so that overlays are alike on every machine: a distribution,
// or the administrator, may set other defaults (CONFIG_OVERLAY_FS_INDEX,
// /sys/module/overlay/parameters/index and so on), and with some of them the kernel
// refuses what tend does, or stores it differently.
package overlay

import "strings"

// settings are all that tend relies on, each with its value. The order is that of the mount.
//
//   - index=off: with an index the kernel refuses a directory that another overlay writes to
//     (EBUSY), as that of a sandbox is when a model's command looks at it, and one that was
//     written over other layers before (ESTALE).
//   - nfs_export=off: it turns the index on.
//   - redirect_dir=nofollow: a directory that is renamed is copied. Where a rename leaves a
//     redirect, only that kernel's next overlay of the same layers finds what was in it: no
//     snapshot, no fork and no list of changes does. None is followed either: "off" follows
//     them on some kernels, and is then refused together with userxattr.
//   - metacopy=off: a file whose mode is changed is copied with its content. If not, the
//     directory that takes what is written has a file with holes in place of the content.
//
// xino is the machine's: it is about numbers of inodes alone, on which nothing here relies.
var settings = [][2]string{{"index", "off"}, {"nfs_export", "off"}, {"redirect_dir", "nofollow"}, {"metacopy", "off"}}

// Spec is an overlay. Its paths have no comma, colon or backslash.
type Spec struct {
	Lower       []string // topmost first
	Upper, Work string   // take what is written; empty: nothing can be
	// User has the kernel keep its marks in attributes that user namespaces may write
	// (userxattr), and not in those of the machine's root.
	User bool
	// Volatile: nothing of it is forced to the disk.
	Volatile bool
}

// Options of mount(2).
func (s *Spec) Options() string {
	o := []string{"lowerdir=" + strings.Join(s.Lower, ":")}
	if s.Upper != "" {
		o = append(o, "upperdir="+s.Upper, "workdir="+s.Work)
	}
	for _, set := range settings {
		o = append(o, set[0]+"="+set[1])
	}
	if s.User {
		o = append(o, "userxattr")
	}
	if s.Volatile {
		o = append(o, "volatile")
	}
	return strings.Join(o, ",")
}
