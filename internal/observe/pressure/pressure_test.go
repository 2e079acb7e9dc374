package pressure

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/tend-run/tend/internal/support/proctest"
)

// machine unpacks a recorded machine.
func machine(t *testing.T, name string) System {
	t.Helper()
	a := proctest.Value(txtar.ParseFile("testdata/" + name + ".txtar"))(t)
	root := t.TempDir()
	for _, f := range a.Files {
		path := filepath.Join(root, f.Name)
		proctest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		proctest.Must(t, os.WriteFile(path, f.Data, 0o600))
	}
	return System{Root: root}
}

func TestTheLevelThatIsNearestToItsLimitCounts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		want  Memory
		kills int64
	}{
		{"v2", Memory{Level: "/sys/fs/cgroup/app.slice", Limit: 524288000, Working: 460000000, Held: 410000000}, 2},
		{"v1", Memory{Level: "/sys/fs/cgroup/memory", Limit: 1000000000, Working: 950000000, Held: 850000000}, 1},
		{"hybrid", Memory{Limit: 24700000 << 10, Working: 1200000 << 10, Held: 1200000 << 10}, -1},
		{"namespace", Memory{Level: "/sys/fs/control groups", Limit: 200000000 + 100000<<10, Working: 189999999, Held: 189999998}, -1},
		{"none", Memory{Limit: 1000000 << 10, Working: 950000 << 10, Held: 950000 << 10}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := proctest.Value(machine(t, tt.name).GroupOf(7))(t)
			if diff := cmp.Diff(tt.want, g.Memory()); diff != "" {
				t.Errorf("memory:\n%s", diff)
			}
			if n, ok := g.OOMKills(); ok != (tt.kills >= 0) || ok && n != tt.kills {
				t.Errorf("%d were ended for want of memory (%v); want %d", n, ok, tt.kills)
			}
		})
	}
}

func TestALookHasAllThatIsKnown(t *testing.T) {
	s := machine(t, "v2")
	g := proctest.Value(s.GroupOf(7))(t)
	if got := g.Members(); !slices.Equal(got, []int{7, 8, 9}) {
		t.Errorf("the members are %v", got)
	}
	got := s.Look(g, g.Members(), []string{t.TempDir()})
	if got.Stall != (Stall{Some10: 31.5, Some60: 12, Full10: 22.25, Full60: 7}) || !got.Stalls {
		t.Errorf("it stalls %+v", got.Stall)
	}
	if want := (Count{Name: "pid 7", Used: 4, Limit: 10}); got.Descriptors != want {
		t.Errorf("descriptors are %+v", got.Descriptors)
	}
	if want := (Count{Name: "/sys/fs/cgroup/app.slice", Used: 95, Limit: 100}); got.Tasks != want {
		t.Errorf("tasks are %+v", got.Tasks)
	}
	if want := int64(50000 * os.Getpagesize()); got.Memory.Own != want {
		t.Errorf("it holds %d itself; want %d", got.Memory.Own, want)
	}
	hybrid := machine(t, "hybrid")
	g = proctest.Value(hybrid.GroupOf(7))(t)
	if st, ok := g.Stall(); !ok || st.Some60 != 2 {
		t.Errorf("of the group beside version 1: %+v", st)
	}
	g = proctest.Value(machine(t, "none").GroupOf(7))(t)
	if _, ok := g.Stall(); ok || g.Members() != nil {
		t.Error("something is known of what says nothing")
	}
	if _, err := s.GroupOf(8); err == nil {
		t.Error("a process that is not there has groups")
	}
}

// rules are the defaults of a service.
func rules() *Rules {
	return &Rules{Memory: 0.9, Descriptors: 0.9, Pids: 0.9, Disk: 200 << 20, Looks: 4, Of: 5, Stalls: true}
}

// play gives looks two seconds apart, and returns what was found with its number.
func play(r *Rules, looks ...Sample) (found []string) {
	var j Judge
	for i := range looks {
		for _, f := range j.Add(r, time.Duration(i)*2*time.Second, &looks[i]) {
			found = append(found, string(rune('a'+i))+" "+string(f.Kind))
		}
	}
	return found
}

func times(n int, s Sample) (all []Sample) {
	for range n {
		all = append(all, s)
	}
	return all
}

func memory(working, held int64) Sample {
	return Sample{Memory: Memory{Limit: 1000, Working: working, Held: held}, Stalls: true}
}

func TestWhatIsShortIsSaidOnceAndAgainAfterItWasCalm(t *testing.T) {
	high, low := memory(950, 950), memory(100, 100)
	stalled := memory(900, 600)
	stalled.Stall = Stall{Full10: 15}
	cache := memory(990, 100) // of pages of files that are read again and again
	cache.Stall = Stall{Full10: 80, Some60: 90}
	loaded := memory(300, 300)
	loaded.Stall = Stall{Full10: 90, Some60: 90}
	mute := memory(950, 100)
	mute.Stalls = false
	fds := Sample{Descriptors: Count{Name: "pid 1", Used: 95, Limit: 100}}
	pids := Sample{Tasks: Count{Name: "/x", Used: 95, Limit: 100}}
	const g = 1 << 30
	disk := func(size, free int64) Sample { return Sample{Disks: []Disk{{Dir: "/", Size: size, Free: free}}} }
	growing := []Sample{memory(700, 700), memory(770, 770), memory(840, 840), memory(910, 910)}
	slow := []Sample{memory(846, 846), memory(847, 847), memory(848, 848), memory(849, 849)}
	starting := []Sample{memory(100, 100), memory(300, 300), memory(500, 500), memory(700, 700), memory(700, 700)}
	var steps, jumps, ended []Sample // looks that are more frequent than growth
	for _, held := range []int64{820, 840, 860, 880} {
		steps = append(steps, times(2, memory(held, held))...)
		jumps = append(jumps, memory(held, held), memory(held-2, held-2))
	}
	for _, held := range []int64{100, 400, 790, 790, 790, 805, 806, 810} {
		ended = append(ended, memory(held, held))
	}
	sawtooth := []Sample{memory(800, 800), memory(840, 840), memory(880, 880), memory(700, 700), memory(800, 800), memory(840, 840), memory(700, 700)}
	seed := &Rules{Memory: 0.9, Looks: 4, Of: 4}
	for _, tt := range []struct {
		name  string
		r     *Rules
		looks []Sample
		want  []string
	}{
		{"four looks of five", rules(), append(append(times(3, high), low), high, high), []string{"e memory"}},
		{"three looks of five", rules(), append(times(3, high), low, low, high, low), nil},
		{"once while it lasts", rules(), times(20, high), []string{"d memory"}},
		{"again after it was calm", rules(), append(append(times(5, high), times(5, low)...), times(5, high)...), []string{"d memory", "n memory"}},
		{"a stall counts at its second look", rules(), times(4, stalled), []string{"b memory"}},
		{"a stall of pages of files is none", rules(), times(20, cache), nil},
		{"a stall with room left is not its own", rules(), times(20, loaded), nil},
		{"working counts where nothing is known of stalls", rules(), times(5, mute), []string{"d memory"}},
		{"growth is seen before the end", rules(), growing, []string{"d memory"}},
		{"growth by steps is seen before the end", rules(), steps, []string{"g memory"}},
		{"noise does not hide growth", rules(), jumps, []string{"g memory"}},
		{"a start that is at its end is no growth", rules(), ended, nil},
		{"what is given back is no growth", rules(), sawtooth, nil},
		{"slow growth is none", rules(), slow, nil},
		{"a start is no growth to the end", rules(), starting, nil},
		{"the seed's four in a row, by working", seed, append(append(times(3, memory(950, 0)), low), times(4, memory(950, 0))...), []string{"h memory"}},
		{"the seed knows no stalls", seed, times(3, stalled), nil},
		{"descriptors", rules(), times(6, fds), []string{"d descriptors"}},
		{"processes", rules(), times(6, pids), []string{"d pids"}},
		{"a disk", rules(), times(6, disk(100*g, g/10)), []string{"d disk"}},
		{"a large disk with room for all", rules(), times(6, disk(4000*g, 10*g)), nil},
		{"a small disk that is half empty", rules(), times(6, disk(g/10, g/20)), nil},
		{"inodes", rules(), times(6, Sample{Disks: []Disk{{Size: g, Free: g, Inodes: 1000, Left: 3}}}), []string{"d disk"}},
		{"what is off", &Rules{Looks: 1, Of: 1}, times(6, Sample{Memory: high.Memory, Descriptors: fds.Descriptors, Tasks: pids.Tasks, Disks: disk(g, 0).Disks}), nil},
		{"nothing is known", rules(), times(9, Sample{}), nil},
	} {
		if got := play(tt.r, tt.looks...); !slices.Equal(got, tt.want) {
			t.Errorf("%s: found %v; want %v", tt.name, got, tt.want)
		}
	}
}

func TestAFindingSaysWhoseItIs(t *testing.T) {
	s := memory(950, 950)
	s.Memory.Level, s.Memory.Own = "/web", 500
	var j Judge
	f := j.Add(&Rules{Memory: 0.9, Looks: 1, Of: 1}, 0, &s)
	if len(f) != 1 || !f[0].Own || f[0].Text != "memory is short: 950 bytes of 1000 bytes of the control group /web are in use" {
		t.Errorf("got %+v", f)
	}
	s.Memory.Level, s.Memory.Own = "", 10
	j = Judge{}
	f = j.Add(&Rules{Memory: 0.9, Looks: 1, Of: 1}, 0, &s)
	if len(f) != 1 || f[0].Own || !strings.HasSuffix(f[0].Text, "of the machine are in use, and it holds 10 bytes itself") {
		t.Errorf("got %+v", f)
	}
}

func TestTenseIsWhatComesNear(t *testing.T) {
	for _, tt := range []struct {
		s    Sample
		want bool
	}{
		{memory(500, 500), false}, {memory(990, 100), false}, {memory(800, 800), true},
		{Sample{Descriptors: Count{Used: 80, Limit: 100}}, true}, {Sample{Stalls: true, Stall: Stall{Some10: 20}}, true},
	} {
		if got := tt.s.Tense(rules()); got != tt.want {
			t.Errorf("%+v: got %v", tt.s, got)
		}
	}
}

func FuzzTheKernelsTexts(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/a/b\n", "some avg10=1.5 avg60=2 avg300=0 total=4\n")
	f.Add("36 31 0:33 /x /c\\040d rw - cgroup cgroup rw,pids\n", "8:pids:/x/y\n", "Max open files 10 20 files\n")
	f.Fuzz(func(t *testing.T, mounts, group, text string) {
		for _, c := range []string{"", "pids"} {
			if n := len(levels(mounts, group, c)); n > len(mounts)+len(group)+1 {
				t.Errorf("%d levels", n)
			}
		}
		if s, ok := parseStall(text); ok && !(s.Some10 >= 0 && s.Some10 <= 100) {
			t.Errorf("%+v", s)
		}
		softLimit(text, "Max")
	})
}
