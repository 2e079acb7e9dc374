package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// diskSize is a disk that is soon full.
const diskSize = 16 << 20

// fill writes until the disk takes no more, and removes that again. It says what a write
// answers then, and whether a tenth too little or too much was there.
const fill = `perl -MErrno -e 'my $b = "x" x 65536; my $n = 0; my $w; open my $f, ">", "/tmp/fill" or die "open: $!\n";
	while (defined($w = syswrite $f, $b)) { $n += $w; die "it never ends\n" if $n > 64 << 20 }
	my $full = $!{ENOSPC} || $!{EDQUOT} ? "full" : "$!";
	close $f; unlink "/tmp/fill"; my $m = $n / ` + "(16 << 20)" + `; print $full, $m < 0.9 ? " early at $n" : $m > 1.1 ? " late at $n" : "", "\n"'`

// changeAll changes files of the machine until the disk takes no copy more. It says what a change
// answers then, and whether more was copied than there is room for. How near to the end the
// last one that fits comes depends on the machine's files.
const changeAll = `perl -MErrno -e 'my ($n, $most) = (0, 1.1 * ` + "(16 << 20)" + `);
	for my $f (glob "/usr/bin/* /usr/sbin/* /usr/lib/*/*.so*") {
		next if -l $f or !-f _;
		my ($mode, $size) = (stat _)[2, 7];
		if (!chmod $mode & 07777 | 0200, $f) { print $!{ENOSPC} || $!{EDQUOT} ? "full" : "$f: $!", $n > $most ? " late at $n" : "", "\n"; exit }
		$n += $size }
	print "not full at $n\n"'`

// disks: a disk that was asked for is as large as that, in bytes and in files, whatever is
// done inside and to the sandbox; nobody else notices.
func disks(t *testing.T, d driver.Driver) {
	if Lacks(t, d, "disk") {
		return
	}
	neighbour, _ := create(t, d, driver.Spec{})
	s, info := create(t, d, driver.Spec{Name: "bomb", Isolation: driver.IsolationFull, Size: driver.Size{Disk: diskSize}})
	wants := func(s driver.Sandbox, when, line, want string) {
		t.Helper()
		if out, status := sh(t, s, line); out != want {
			t.Errorf("%s: %q, status %d; want %q", when, out, status, want)
		}
	}
	if info.Size.Disk != diskSize {
		t.Errorf("it has a disk of %d bytes, want %d", info.Size.Disk, diskSize)
	}
	for _, c := range []struct{ what, line, want string }{
		{"a bomb of bytes", fill, "full\n"},
		{"what was removed is free again", fill, "full\n"},
		{"a bomb of files", `perl -MErrno -e 'mkdir "/tmp/d"; my $n = 0; while (open my $f, ">", "/tmp/d/$n") { last if ++$n > 20000 } print $!{ENOSPC} || $!{EDQUOT} ? "full" : "$!", $n > 1000 && $n < 5000 ? "" : " at $n", "\n"'; rm -r /tmp/d`, "full\n"},
		{"a bomb of directories",
			`perl -MErrno -e 'mkdir "/tmp/d"; my $n = 0; while (mkdir "/tmp/d/$n") { last if ++$n > 20000 } print $!{ENOSPC} || $!{EDQUOT} ? "full" : "$!", "\n"'; rm -r /tmp/d`, "full\n"},
		{"room that is asked for ahead", `fallocate -l 64M /var/tmp/a 2>&1 | grep -c 'No space\|quota'; rm -f /var/tmp/a`, "1\n"},
		// A size is no room: what is written counts.
		{"a file of holes", `truncate -s 1G /tmp/h && dd if=/dev/zero of=/tmp/h bs=1M seek=900 count=64 conv=notrunc 2>&1 | grep -c 'No space\|quota'; rm -f /tmp/h`, "1\n"},
		{"other names and places of one file",
			`dd if=/dev/zero of=/root/a bs=1M count=12 2>/dev/null; mkdir -p /opt/x; ln /root/a /opt/x/b; mv /root/a /var/tmp/c; ` +
				`dd if=/dev/zero of=/etc/more bs=1M count=8 2>&1 | grep -c 'No space\|quota'; rm -f /opt/x/b /var/tmp/c /etc/more`, "1\n"},
		{"another project, for kernels that count by those", `chattr -p 7 +P /tmp /root 2>/dev/null; ` + fill, "full\n"},
		// The last: what it makes copies of, until nothing fits, stays.
		{"files of the machine that are changed", changeAll, "full\n"},
	} {
		wants(s, c.what, c.line, c.want)
		wants(neighbour, "after "+c.what+" the neighbour", `dd if=/dev/zero of=/tmp/n bs=1M count=24 2>/dev/null && echo on; rm -f /tmp/n`,
			"on\n")
	}
}

// disksStay: the limit and what is on the disk outlive a stop and a pause; a snapshot has the
// files, and a copy has a disk of its own.
func disksStay(t *testing.T, d driver.Driver) {
	if Lacks(t, d, "disk") {
		return
	}
	s, info := create(t, d, driver.Spec{Name: "stays", Isolation: driver.IsolationFull, Size: driver.Size{Disk: diskSize}})
	half := `dd if=/dev/urandom of=/root/half bs=1M count=8 2>/dev/null; rm -f /bin/tac; cksum </root/half`
	sum, _ := sh(t, s, half)
	has := func(s driver.Sandbox, when, room string) {
		t.Helper()
		if out, _ := sh(t, s, `cksum </root/half; ls /bin/tac 2>/dev/null`); out != sum {
			t.Errorf("%s its files are %q, want %q", when, out, sum)
		}
		if in, err := s.Info(t.Context()); err != nil || in.Size.Disk != diskSize {
			t.Errorf("%s it has %+v, %v", when, in.Size, err)
		}
		out, _ := sh(t, s, `dd if=/dev/zero of=/tmp/more bs=1M count=12 2>&1 | grep -c 'No space\|quota'; rm -f /tmp/more`)
		if strings.TrimSpace(out) != room {
			t.Errorf("%s 12 MiB more: %q, want %q", when, out, room)
		}
	}
	const full, fits = "1", "0"
	has(s, "at first", full)
	if m, ok := d.(driver.Meter); ok {
		all, err := m.Metrics(t.Context(), info.ID, time.Time{}, time.Time{})
		if err != nil || len(all) == 0 {
			t.Fatal(err, all)
		}
		if now := all[len(all)-1]; now.DiskTotal != diskSize || now.DiskUsed < 8<<20 || now.DiskUsed > diskSize {
			t.Errorf("of its disk %d of %d bytes are used", now.DiskUsed, now.DiskTotal)
		}
	}
	var copies []driver.Sandbox
	if n, ok := d.(driver.Snapshotter); ok && d.Capabilities().Snapshots {
		for _, name := range []string{"of-one-that-rests", "of-one-that-runs"} {
			snap, err := n.Snapshot(t.Context(), info.ID, driver.SnapshotSpec{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			c, _ := create(t, d, driver.Spec{Snapshot: snap.Name, Isolation: driver.IsolationFull, Size: driver.Size{Disk: diskSize}})
			copies = append(copies, c)
			sh(t, s, `sleep 600 >/dev/null 2>&1 &`)
		}
		forks, err := d.(driver.Forker).Fork(t.Context(), info.ID, driver.ForkSpec{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range forks {
			if f.Err != nil {
				t.Fatal(f.Err)
			}
			copies = append(copies, f.Sandbox)
		}
	}
	for _, c := range copies {
		has(c, "a copy:", fits) // what it was made from does not count
	}
	has(s, "after it was copied", full)
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, ok := d.(driver.Snapshotter); ok && d.Capabilities().Snapshots {
		if _, err := n.Snapshot(t.Context(), info.ID, driver.SnapshotSpec{Name: "of-one-that-is-stopped"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(s, "after a stop", full)
	if p, ok := d.(driver.Pauser); ok {
		for _, memory := range []bool{true, false} {
			if memory && Lacks(t, d, "freeze") {
				continue
			}
			if err := p.Pause(t.Context(), info.ID, driver.PauseSpec{Memory: memory}); err != nil {
				t.Fatal(err)
			}
			if err := p.Resume(t.Context(), info.ID); err != nil {
				t.Fatal(err)
			}
			has(s, "after a pause", full)
		}
	}
}
