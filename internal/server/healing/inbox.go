package healing

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
)

// signalled sends a signal to the worker. Signals beyond those that an episode keeps
// change nothing.
func (f *follower) signalled(e healer.Entry) {
	if f.told++; f.told <= healer.MaxSignals {
		_ = f.tell(e) // else the worker sees it by itself
	}
}

// cancel asks the worker to end. It writes this once, because a file that grows with
// each request could become unreadable.
func (f *follower) cancel() error {
	if f.cancelled {
		return nil
	}
	err := f.tell(healer.Entry{At: time.Now(), Kind: healer.Cancelled})
	f.cancelled = err == nil
	return err
}

// tell puts an entry into the inbox of the worker. If it cannot be written, it is lost;
// the worker also observes the service by itself.
func (f *follower) tell(e healer.Entry) error {
	f.inbox.Lock()
	defer f.inbox.Unlock()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := atomicfile.Open(f.order.Path(healer.InboxFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
