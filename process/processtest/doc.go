// Package processtest holds the suite that every implementation of
// [process.Manager] passes.
//
//	func TestMain(m *testing.M) {
//		processtest.Main() // becomes a child of the suite, if it was started as one
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		processtest.Run(t, func(t *testing.T) process.Manager { return mine.New(t) })
//	}
//
// The processes of the suite are /bin/sh, coreutils, and the test binary
// itself where a program is needed that no system has: such a process is
// started with its role in the environment variable TEND_PROCESSTEST, and
// [Main] plays it. So the manager must start its processes on the machine of
// the test.
//
// The suite never measures time: it waits for facts, and a subtest fails when its
// deadline of one minute passes without them. The subtests run in parallel and use
// unique names, tags and IDs, so the manager may be shared and may know other
// processes.
package processtest
