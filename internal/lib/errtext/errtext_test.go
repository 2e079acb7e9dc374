package errtext_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/tend-run/tend/internal/lib/errtext"
)

func TestAnErrorHasItsOwnTextAndMatchesAnother(t *testing.T) {
	err := errtext.New("there is no key", &fs.PathError{Err: fs.ErrNotExist})
	if _, ok := errors.AsType[*fs.PathError](err); !ok || !errors.Is(err, fs.ErrNotExist) || err.Error() != "there is no key" {
		t.Errorf("%v", err)
	}
}
