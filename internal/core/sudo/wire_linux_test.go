package sudo

import (
	"reflect"
	"testing"
)

func TestListsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, lists := range [][][]string{{{"a", ""}, {}, {"b\n"}}, {{}, {}, {}}, {{"1", "0"}, {"2"}, {""}}} {
		got, err := decode(encode(lists), len(lists))
		if err != nil || len(got) != len(lists) {
			t.Fatalf("%q: %q, %v", lists, got, err)
		}
		for i := range lists {
			if len(lists[i])+len(got[i]) > 0 && !reflect.DeepEqual(got[i], lists[i]) {
				t.Errorf("%q comes as %q", lists, got)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "0\x00", "1\x00a\x000\x00", "9\x00", "-1\x00", "99999999999999999999\x00", "2147483647\x00a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if lists, err := decode(text, 3); err == nil && len(lists) != 3 {
			t.Errorf("%q is %q", text, lists)
		}
	})
}
