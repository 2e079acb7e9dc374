package healing

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/tend-run/tend/healer"
	"github.com/tend-run/tend/internal/replace"
)

// signalled tells the worker of a signal. Beyond those that an episode keeps, none changes
// anything.
func (f *follower) signalled(e healer.Entry) {
	if f.told++; f.told <= healer.MaxSignals {
		_ = f.tell(e) // else the worker sees it by itself
	}
}

// cancel tells the worker to end. Once is enough: a file that grew with each request could
// not be read any more.
func (f *follower) cancel() error {
	if f.cancelled {
		return nil
	}
	err := f.tell(healer.Entry{At: time.Now(), Kind: healer.Cancelled})
	f.cancelled = err == nil
	return err
}

// tell puts an entry into the inbox of the worker. What cannot be written is lost: the
// worker sees the service by itself.
func (f *follower) tell(e healer.Entry) error {
	f.inbox.Lock()
	defer f.inbox.Unlock()
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	file, err := replace.Open(f.order.Path(healer.InboxFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
