//go:build !linux

package envd

func readMemory(*sample) {}
func readDisk(*sample)   {}
func readCPU() cpuTime   { return cpuTime{} }
