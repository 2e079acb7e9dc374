package git

import (
	"context"
	"fmt"
	"strings"
)

// CheckOut makes a file of the project that is not there as the index has it. One whose content
// a filter makes is refused: no filter runs.
func (r *Repository) CheckOut(ctx context.Context, root, name string) error {
	if err := r.Disarm(ctx); err != nil {
		return err
	}
	run := func(args ...string) ([]byte, error) {
		return output(r.command(ctx, root, nil, nil, args), nil, args[0])
	}
	out, err := run("check-attr", "-z", "filter", "--", name)
	if err != nil {
		return err
	}
	if f := strings.Split(string(out), "\x00"); len(f) > 2 && r.drivers[f[2]] {
		return fmt.Errorf("git makes %s by the filter %s, a program of the repository's configuration, which tend does not run: git checkout -- %[1]s restores it", name, f[2])
	}
	_, err = run("checkout-index", "--", name)
	return err
}
