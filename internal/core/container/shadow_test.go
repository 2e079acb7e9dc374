package container

import "testing"

// TestAShadowHasEachUserAndNoPassword: also where the machine's files have some, or lines that
// name nobody.
func TestAShadowHasEachUserAndNoPassword(t *testing.T) {
	for _, c := range []struct {
		passwd, group, shadow, gshadow string
		gid                            int
	}{
		{"", "", "", "", 0},
		{"root:x:0:0:root:/root:/bin/bash\nww-w.1:$6$hash:33:33::/:/bin/sh", "root:x:0:\nshadow:secret:42:a,b\n",
			"root:*:::::::\nww-w.1:*:::::::\n", "root:*::\nshadow:*::a,b\n", 42},
		{"+nis::::::\n-no:x:1:1\n# a:b:c\n\n:x:1:1::\nshort:x\n", "+:::\nshadow:x:65536:\n", "", "shadow:*::\n", 0},
		{"", "shadow:x:-1:\n", "", "shadow:*::\n", 0},
	} {
		if shadow, gshadow, gid := Shadow(c.passwd, c.group); shadow != c.shadow || gshadow != c.gshadow || gid != c.gid {
			t.Errorf("of %q and %q: %q, %q, %d", c.passwd, c.group, shadow, gshadow, gid)
		}
	}
}
