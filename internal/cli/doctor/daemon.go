package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/core/container"
)

// Promise is what a daemon says of one thing that it promises, as in the JSON of tend status.
type Promise struct {
	Kept   bool   `json:"kept"`
	Detail string `json:"detail,omitempty"`
}

// essential promises are broken where they are not kept. All others depend on what
// the machine allows.
var essential = map[string]string{
	"keeper_answers":           "tend upgrade --keeper",
	"spool_takes_output":       "tend rm --finished frees what ended processes have written; or tend serve --state-dir DIR on another disk",
	"processes_survive_keeper": "look again in a moment; if it stays: tend shutdown --keep, then tend serve",
}

// Passing reports whether something that is broken may be as it should be in a moment:
// roles that have just begun give each other their descriptors.
func Passing(promises map[string]Promise) bool {
	for _, name := range []string{"keeper_answers", "processes_survive_keeper", "processes_survive_anchor_and_keeper"} {
		if p, ok := promises[name]; ok && !p.Kept {
			return true
		}
	}
	return false
}

const otherDisk = "tend serve --state-dir DIR, with a DIR on ext4, xfs or btrfs"

// mends are for promises that this machine does not allow.
var mends = map[string]string{
	"output_survives_keeper":              otherDisk,
	"retention_frees_space":               otherDisk,
	"kill_reaches_tree":                   groupsWritable,
	"exit_status_survives_two_roles":      "a kernel of Linux 6.15 or later",
	"processes_survive_anchor_and_keeper": "look again in a moment; if it stays: tend shutdown --keep, then tend serve",
	"boxes":                               isolates,
	"output_survives_power_loss":          otherDisk,
}

// isolates is what isolated sandboxes need as a rule: the detail says what is missing here.
const isolates = "sudo tend serve, on Linux 5.19 or later; " + container.InContainer

const groupsWritable = "mount -t cgroup2 cgroup2 /sys/fs/cgroup, and tend as root (docker run --privileged; Delegate=yes in a systemd unit)"

// Promises judges what a daemon promises.
func Promises(all map[string]Promise) (out []Finding) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		f := Finding{Name: name, State: OK, Detail: p.Detail}
		switch mend, isEssential := essential[name]; {
		case p.Kept:
		case name == "output_survives_power_loss" && strings.Contains(p.Detail, "tend serve --fsync"):
			f.Detail = "by choice: " + p.Detail
		case isEssential:
			f.State, f.Mend = Broken, mend
		default:
			f.State, f.Mend = Limited, mends[name]
		}
		out = append(out, f)
	}
	return out
}

// layerMends are for layers of isolation.
var layerMends = map[string]string{
	"all":      isolates,
	"base":     otherDisk,
	"user":     "sudo tend serve",
	"ids":      "Linux 6.3 or later",
	"freeze":   groupsWritable,
	"memory":   groupsWritable,
	"tasks":    groupsWritable,
	"cpu":      groupsWritable,
	"disk":     "install e2fsprogs; modprobe -a loop ext4; in a container: docker run --privileged",
	"copies":   container.InContainer,
	"outgoing": "modprobe -a nf_tables nft_tproxy nft_socket",
	"seccomp":  "a kernel with CONFIG_SECCOMP_FILTER",
	"landlock": "lsm=landlock (and those that are there) on the command line of the kernel, which must have CONFIG_SECURITY_LANDLOCK",
}

func and(way string) string {
	if way == "" {
		return ""
	}
	return "; " + way
}

// Isolation judges what the driver of sandboxes says: layers are the active ones,
// missing is "layer: reason; layer: reason", and way how sandboxes are made, all as in tend status.
func Isolation(layers, missing, way string) (out []Finding) {
	if layers != "" && layers != "none" {
		out = append(out, Finding{Name: "isolation", State: OK, Detail: layers + and(way)})
	}
	// With one id it is said as the layer user.
	if parts := strings.Fields(way); slices.Contains(parts, "owners=nobody") && !slices.Contains(parts, "ids=1") {
		out = append(out, Finding{Name: "isolation_base", State: Limited,
			Detail: "this machine's files are nobody's in sandboxes, and packages cannot be upgraded there: " +
				"their filesystem cannot show other ids (an overlay, as in a container)",
			Mend: "a template with a root of its own (FROM dir:DIR), or tend on the machine itself"})
	}
	for _, m := range Missing(missing) {
		name := "isolation"
		if m[0] != "all" {
			name += "_" + m[0]
		}
		mend := layerMends[m[0]]
		if strings.HasPrefix(m[1], container.MayNotMount) {
			mend = container.InContainer
		}
		out = append(out, Finding{Name: name, State: Limited, Detail: m[1], Mend: mend})
	}
	if len(out) == 0 {
		out = append(out, Finding{Name: "isolation", State: Limited, Detail: "sandboxes are this machine itself", Mend: layerMends["all"]})
	}
	return out
}

// Images judges what images take, as the driver says it in tend status.
func Images(facts map[string]string) []Finding {
	var n [3]uint64
	for i, name := range []string{"image_bytes", "image_most", "image_disk"} {
		n[i], _ = strconv.ParseUint(facts[name], 10, 64) // what is not said is 0
	}
	if facts["images"] == "" {
		return nil
	}
	f := Finding{Name: "images", State: OK, Detail: fmt.Sprintf("%s, with files of %s", facts["images"], bytesText(n[0]))}
	switch {
	case n[1] > 0:
		f.Detail += " of at most " + bytesText(n[1])
	case n[2] > 0 && n[0] > n[2]/5:
		f.State, f.Detail = Limited, f.Detail+", more than a fifth of the disk, and nothing bounds them"
		f.Mend = "tend image prune --all removes those that nothing uses; tend serve --images-max SIZE"
	}
	return []Finding{f}
}

// Missing parts the text into layers and reasons. A reason may have a semicolon of its
// own: what begins with no layer belongs to the reason before.
func Missing(text string) (out [][2]string) {
	for piece := range strings.SplitSeq(text, "; ") {
		layer, reason, ok := strings.Cut(piece, ": ")
		_, known := layerMends[layer]
		switch {
		case ok && known:
			out = append(out, [2]string{layer, reason})
		case len(out) > 0:
			out[len(out)-1][1] += "; " + piece
		}
	}
	return out
}

// Unit judges the text of tend's unit of systemd, with what overrides it after it.
func Unit(path, text string) Finding {
	f := Finding{Name: "systemd", State: OK, Detail: path}
	set := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			set[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	const override = "systemctl edit tend: [Service] "
	switch delegate := set["Delegate"]; {
	case strings.Contains(set["ExecStart"], "--keep") && set["KillMode"] != "process":
		f.State, f.Detail, f.Mend = Broken, path+" has --keep, and systemd ends all processes with the service: KillMode is not process",
			override+"KillMode=process"
	case delegate == "" || delegate == "no" || delegate == "false" || delegate == "0":
		f.State, f.Detail, f.Mend = Limited, path+" has no Delegate=yes: systemd may change the control groups that tend makes",
			override+"Delegate=yes"
	}
	return f
}

// Exposure judges on which TCP addresses a daemon listens. insecure: it answers
// everybody; token: it wants one.
func Exposure(at []netip.AddrPort, insecure, token bool) Finding {
	f := Finding{Name: "exposure", State: OK, Detail: "no TCP"}
	var all, far []string
	for _, a := range at {
		all = append(all, a.String())
		if !a.Addr().Unmap().IsLoopback() {
			far = append(far, a.String())
		}
	}
	if len(all) == 0 {
		return f
	}
	f.Detail = "TCP at " + strings.Join(all, ", ")
	const mend = "tend serve --token-file FILE, without --insecure"
	switch {
	case insecure && len(far) > 0:
		f.State, f.Detail, f.Mend = Broken, "--insecure: everybody who reaches "+strings.Join(far, ", ")+" can run programs", mend
	case insecure:
		f.State, f.Detail, f.Mend = Limited, f.Detail+", and --insecure: every user and web page of this machine can run programs", mend
	case token:
		f.Detail += ", with a token"
	default:
		f.Detail += ", for this user and root alone"
	}
	return f
}
