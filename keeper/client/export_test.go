//go:build linux

package client

import "github.com/tend-run/tend/keeper/wire"

// HoldSlots keeps the slots of finished processes from being given back, as the
// death of the server does that comes before.
func (m *Manager) HoldSlots() {
	m.retiring.Lock()
	defer m.retiring.Unlock()
	m.retiring.refs = append(m.retiring.refs, wire.Ref{Slot: wire.VaultGlobal}) // whoever comes first sends
}
