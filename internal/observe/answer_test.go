package observe

import (
	"net/netip"
	"testing"

	"github.com/tend-run/tend/internal/lib/sockdiag"
)

func TestTheKernelsChoiceOfAListenerIsKnown(t *testing.T) {
	for _, tt := range []struct {
		to   string
		all  []string // inode=address
		want string
	}{
		{"127.0.0.1:80", []string{"a=127.0.0.1:80"}, "a"},
		{"127.0.0.1:80", []string{"a=0.0.0.0:80", "b=127.0.0.1:80"}, "b"},
		{"127.0.0.1:80", []string{"b=127.0.0.1:80", "a=0.0.0.0:80"}, "b"},
		{"127.0.0.1:80", []string{"a=0.0.0.0:80", "b=[::]:80"}, "a"},
		{"127.0.0.1:80", []string{"b=[::]:80"}, "b"},
		{"127.0.0.1:80", []string{"b=[::ffff:127.0.0.1]:80", "c=[::]:80"}, "b"},
		{"127.0.0.1:80", []string{"a=0.0.0.0:80", "b=0.0.0.0:80", "c=0.0.0.0:81"}, "ab"},
		{"127.0.0.1:80", []string{"a=127.0.0.2:80", "b=[::1]:80"}, ""},
		{"[::1]:80", []string{"a=0.0.0.0:80", "b=[::]:80"}, "b"},
		{"[::1]:80", []string{"a=0.0.0.0:80"}, ""},
	} {
		var all []sockdiag.Socket
		for _, one := range tt.all {
			all = append(all, sockdiag.Socket{Local: netip.MustParseAddrPort(one[2:]), Inode: uint64(one[0])})
		}
		got := ""
		for _, s := range best(all, netip.MustParseAddrPort(tt.to)) {
			got += string(rune(s.Inode))
		}
		if got != tt.want {
			t.Errorf("%s with %v goes to %q; want %q", tt.to, tt.all, got, tt.want)
		}
	}
}
