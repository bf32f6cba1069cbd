package journal

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// errSharingViolation is Windows' answer when a file is open without sharing.
const errSharingViolation = syscall.Errno(32)

// lockFile opens the file without sharing it, which the system undoes when the
// process dies.
func lockFile(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, os.NewSyscallError("CreateFile", err)
	}
	return os.NewFile(uintptr(h), path), nil
}
