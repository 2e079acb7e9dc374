package wire

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tend-run/tend/internal/core/container"
)

// containers are the messages about containers, with the parser of each.
var containers = map[string]func([]byte) (Body, error){
	"spec":   func(b []byte) (Body, error) { m, err := ParseContainerSpec(b); return &m, err },
	"id":     func(b []byte) (Body, error) { return ParseContainerID(b) },
	"freeze": func(b []byte) (Body, error) { return ParseContainerFreeze(b) },
	"limit":  func(b []byte) (Body, error) { return ParseContainerLimit(b) },
	"info":   func(b []byte) (Body, error) { m, err := ParseContainerInfo(b); return &m, err },
	"infos":  func(b []byte) (Body, error) { return ParseContainerInfos(b) },
	"usage":  func(b []byte) (Body, error) { m, err := ParseContainerUsage(b); return &m, err },
	"can":    func(b []byte) (Body, error) { m, err := ParseContainerCan(b); return &m, err },
}

var (
	aContainer     = container.ID("0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10")
	aContainerInfo = container.Info{ID: aContainer, PID: 7, Started: 1 << 40, Mode: container.ModeUser, Active: []string{"pid", "user"}, Group: "/g", Frozen: true, Network: true}
	containerSpec  = &ContainerSpec{container.Spec{
		ID: aContainer, Hostname: "h", Dir: "/d", Layers: []string{"/b", "/a"}, Base: container.BaseNone, Hide: []string{"/x"},
		Binds: []container.Bind{{Source: "/s", Target: "/t", ReadOnly: true}, {Source: "/u", Target: "/v"}}, UIDBase: 100000, Net: container.NetOwn,
		Limits: container.Limits{Memory: 1 << 33, Tasks: 9, CPUs: 0.25}, Harden: container.Harden{Caps: 1 << 40, Seccomp: true, Landlock: true, Setuid: true}, Volatile: true,
	}}
	containerMessages = map[string]Body{
		"spec": containerSpec, "id": ContainerID{aContainer}, "freeze": ContainerFreeze{aContainer, true},
		"limit": ContainerLimit{aContainer, container.Limits{Memory: 1, Tasks: 2, CPUs: 3}},
		"info":  &ContainerInfo{aContainerInfo}, "infos": ContainerInfos{aContainerInfo, {}},
		"usage": &ContainerUsage{container.Usage{CPU: 1, Memory: 2, MemoryPeak: 3, Tasks: 4, OOMKills: 5}},
		"can":   &ContainerCan{container.Can{Mode: container.ModeRootless, Layers: []string{"pid"}, Missing: []container.Missing{{Layer: "cpu", Reason: "no controller"}, {}}}},
	}
)

// TestTheWayIsOptional: a keeper before says none.
func TestTheWayIsOptional(t *testing.T) {
	for _, way := range []string{"", "ids=1 owners=nobody"} {
		var e Enc
		(&ContainerCan{container.Can{Mode: container.ModeUser, Way: way}}).Append(&e)
		if c, err := ParseContainerCan(e.B); err != nil || c.Way != way {
			t.Errorf("%q: %+v, %v", way, c, err)
		}
	}
}

func TestMessagesAboutContainersKeepEachField(t *testing.T) {
	for name, m := range containerMessages {
		var e Enc
		m.Append(&e)
		again, err := containers[name](e.B)
		if d := cmp.Diff(m, again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%s: %v -sent +received:\n%s", name, err, d)
		}
		for n := range e.B {
			if _, err := containers[name](e.B[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes are a message", name, n, len(e.B))
			}
		}
		if _, err := containers[name](append(bytes.Clone(e.B), 0)); err == nil {
			t.Errorf("%s: a byte more is a message too", name)
		}
	}
}

// FuzzContainers: a message about containers ends where its bytes do, and holds no more than was
// sent.
func FuzzContainers(f *testing.F) {
	for _, m := range containerMessages {
		var e Enc
		m.Append(&e)
		f.Add(e.B)
	}
	// Counts that lie.
	f.Add(bytes.Join([][]byte{counts(0), counts(0), counts(0), counts(0), {0}, counts(0), counts(1 << 31)}, nil))
	f.Add(counts(1<<32 - 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, parse := range containers {
			m, err := parse(b)
			switch m := m.(type) {
			case *ContainerSpec:
				if n := len(m.Layers) + len(m.Hide) + len(m.Binds); n > len(b)*maxGrowth {
					t.Fatalf("%s: %d bytes became %d words", name, len(b), n)
				}
			case ContainerInfos:
				if len(m) > len(b) {
					t.Fatalf("%s: %d bytes became %d containers", name, len(b), len(m))
				}
			}
			if err != nil {
				continue
			}
			var e, e2 Enc
			m.Append(&e)
			if again, err := parse(e.B); err != nil {
				t.Errorf("%s: %x was read as %x, %v", name, b, e.B, err)
			} else if again.Append(&e2); !bytes.Equal(e.B, e2.B) { // numbers that are none are not equal to themselves
				t.Errorf("%s: %x was read as %x", name, e.B, e2.B)
			}
		}
	})
}

// What a server and a keeper of before say of a start has nothing of containers in it, and
// is as it was.
func TestAStartOutsideIsSaidAsBefore(t *testing.T) {
	var with, without Enc
	s := Spawn{Path: "/bin/true", Argv: []string{"true"}, Sync: 1}
	s.Append(&without)
	s.Container = aContainer
	s.Append(&with)
	if !bytes.HasPrefix(with.B, without.B) || len(with.B) != len(without.B)+4+len(aContainer) {
		t.Errorf("with a container %x, without %x", with.B, without.B)
	}
	for _, want := range []Spawn{s, {Path: "/bin/true", Argv: []string{"true"}, Sync: 1}} {
		var e Enc
		want.Append(&e)
		if got, err := ParseSpawn(e.B); err != nil || !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	var out, in Enc
	a := Spawned{Ref: Ref{1, 2}, PID: 3, Keeper: 4}
	a.Append(&out)
	if len(out.B) != 4+4+4+1+4 {
		t.Errorf("the answer has %d bytes", len(out.B))
	}
	a.Inner = 5
	a.Append(&in)
	if got, err := ParseSpawned(in.B); err != nil || got != a {
		t.Errorf("%+v, %v; want %+v", got, err, a)
	}
}

// A container without a disk is asked for as a keeper of before knows it, and the file of one
// that was made then is read.
func TestAContainerWithoutADiskIsSaidAsBefore(t *testing.T) {
	var with, without Enc
	s := ContainerSpec{containerSpec.Spec}
	s.Append(&without)
	s.Disk = "/d/disk.img"
	s.Append(&with)
	if !bytes.HasPrefix(with.B, without.B) || len(with.B) != len(without.B)+4+len(s.Disk) {
		t.Errorf("with a disk %x, without %x", with.B, without.B)
	}
	for _, b := range [][]byte{with.B, without.B} {
		got, err := ParseContainerSpec(b)
		if want := (ContainerSpec{containerSpec.Spec}); len(b) == len(without.B) && (err != nil || !got.Equal(&want.Spec)) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		} else if len(b) > len(without.B) && (err != nil || !got.Equal(&s.Spec)) {
			t.Errorf("%+v, %v; want %+v", got, err, s)
		}
	}
	if _, err := ParseContainerSpec(with.B[:len(with.B)-1]); err == nil {
		t.Error("half a disk is one")
	}
}

// TestWhatIsShownIsAtTheEnd: a keeper of before reads a spec without it.
func TestWhatIsShownIsAtTheEnd(t *testing.T) {
	for _, disk := range []string{"", "/disk"} {
		want := *containerSpec
		want.Disk = disk
		var before, e Enc
		want.Append(&before)
		want.Show = []string{"/opt/java", "/nix/store"}
		want.Append(&e)
		got, err := ParseContainerSpec(e.B)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || d != "" || !bytes.HasPrefix(e.B, before.B) {
			t.Errorf("%v -sent +received:\n%s", err, d)
		}
	}
}
