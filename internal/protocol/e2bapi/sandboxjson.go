package e2bapi

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Sandboxes as clients are told of them.

// running reports whether clients are told that a sandbox runs; all others are paused.
func running(s driver.State) bool { return s == driver.Ready || s == driver.Starting }

func stateOf(s driver.State) string {
	if running(s) {
		return "running"
	}
	return "paused"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// templateOf is the template that a sandbox was made from, for clients.
func templateOf(info *driver.Info) string {
	return cmp.Or(info.Notes[noteTemplate], info.TemplateID, info.Template, info.Snapshot, baseTemplate)
}

func (f *Face) sandboxJSON(r *http.Request, info *driver.Info) *sandbox {
	s := &sandbox{
		TemplateID: templateOf(info), SandboxID: string(info.ID), ClientID: clientID, EnvdVersion: f.version,
		Alias: info.Template, EnvdAccessToken: string(f.secret.SandboxToken(string(info.ID))), Domain: f.domain(r),
	}
	if !info.Network.Public {
		token := string(f.secret.TrafficToken(string(info.ID)))
		s.TrafficAccessToken = &token
	}
	return s
}

func (f *Face) listedJSON(info *driver.Info) listed {
	l := listed{
		TemplateID: templateOf(info), SandboxID: string(info.ID), ClientID: clientID, EnvdVersion: f.version, Alias: info.Template,
		StartedAt: stamp(info.Created), EndAt: stamp(time.Now().Add(noDeadline)), State: stateOf(info.State),
		CPUCount: int64(math.Ceil(info.Size.CPUs)), MemoryMB: info.Size.Memory >> 20, DiskSizeMB: info.Size.Disk >> 20,
		Metadata: info.Metadata, VolumeMounts: mountsOf(info),
	}
	if !info.Deadline.IsZero() {
		l.EndAt = stamp(info.Deadline)
	}
	if l.Metadata == nil {
		l.Metadata = map[string]string{}
	}
	l.CPUCount, l.MemoryMB, l.DiskSizeMB = cmp.Or(l.CPUCount, f.machine.cpus), cmp.Or(l.MemoryMB, f.machine.memoryMB),
		cmp.Or(l.DiskSizeMB, f.machine.diskMB)
	return l
}

func (f *Face) detailJSON(r *http.Request, info *driver.Info) *detail {
	internet := !slices.Contains(info.Network.Deny, everything) && info.Network.Mode != driver.NetworkNone
	d := &detail{
		listed: f.listedJSON(info), EnvdAccessToken: string(f.secret.SandboxToken(string(info.ID))), Domain: f.domain(r),
		AllowInternetAccess: internet,
		Network:             network{AllowOut: info.Network.Allow, DenyOut: info.Network.Deny, AllowPublicTraffic: info.Network.Public},
		Lifecycle:           lifecycle{AutoResume: info.Wake, OnTimeout: "kill"},
	}
	d.Network.MaskRequestHost, d.Network.HTTPSPorts = info.Notes[protocol.NoteMaskHost], httpsPorts(info.Notes)
	if info.AtDeadline == driver.ActionPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	return d
}
