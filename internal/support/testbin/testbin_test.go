package testbin

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestAProgramIsBuiltOnceInARun(t *testing.T) {
	stamp, built := filepath.Join(t.TempDir(), "released.run"), 0
	failure := errors.New("it does not compile")
	for _, step := range []struct {
		run   string
		fails error
		want  int // builds until then
	}{
		{"", nil, 1}, {"", nil, 2}, // outside of a run each time
		{"first", failure, 3}, {"first", nil, 4}, {"first", nil, 4},
		{"second", nil, 5}, {"second", nil, 5},
		{"", nil, 6}, {"second", nil, 7}, // what was built since may be of other sources
		{"third", failure, 8}, {"second", nil, 9},
	} {
		err := once(stamp, step.run, func() error {
			built++
			return step.fails
		})
		if built != step.want || !errors.Is(err, step.fails) {
			t.Fatalf("in run %q it was built %d times in all, with the error %v; want %d", step.run, built, err, step.want)
		}
	}
}
