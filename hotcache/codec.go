package hotcache

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// A Codec turns values of a type into bytes and back. Its methods may be called from several goroutines at a time, and
// a decoded value must not share memory with the bytes. For keys, equal keys, and no others, must have equal bytes, and
// at least one.
type Codec[T any] interface {
	// Encode returns what is kept of a value.
	Encode(T) ([]byte, error)
	// Decode returns the value of what was kept.
	Decode([]byte) (T, error)
}

// Strings keeps text as it is. It is the default for strings.
func Strings[T ~string]() Codec[T] { return stringCodec[T]{} }

type stringCodec[T ~string] struct{}

func (stringCodec[T]) Encode(v T) ([]byte, error)    { return []byte(v), nil }
func (stringCodec[T]) Decode(data []byte) (T, error) { return T(data), nil }

// Bytes keeps bytes as they are. It is the default for []byte, as a value.
func Bytes() Codec[[]byte] { return byteCodec{} }

type byteCodec struct{}

func (byteCodec) Encode(v []byte) ([]byte, error)    { return append([]byte(nil), v...), nil }
func (byteCodec) Decode(data []byte) ([]byte, error) { return append([]byte(nil), data...), nil }

// An Integer is any type of whole numbers.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Ints keeps whole numbers in decimal. It is the default for int, int64 and uint64.
func Ints[T Integer]() Codec[T] { return intCodec[T]{} }

type intCodec[T Integer] struct{}

func (intCodec[T]) Encode(v T) ([]byte, error) {
	if v < 0 {
		return strconv.AppendInt(nil, int64(v), 10), nil
	}
	return strconv.AppendUint(nil, uint64(v), 10), nil
}

func (intCodec[T]) Decode(data []byte) (T, error) {
	text := string(data)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && uint64(T(n)) == n && T(n) >= 0 {
		return T(n), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n >= 0 || int64(T(n)) != n || T(n) >= 0 {
		return 0, fmt.Errorf("hotcache: not a whole number that fits into %v", reflect.TypeFor[T]())
	}
	return T(n), nil
}

// JSON keeps values as JSON. It is the default for all types that have no other.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec[T]) Decode(data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// A BinaryPointer is a pointer to T that can write and read T in binary.
type BinaryPointer[T any] interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Binary keeps values in the binary form that they define themselves. It is never a default.
func Binary[T any, P BinaryPointer[T]]() Codec[T] { return binaryCodec[T, P]{} }

type binaryCodec[T any, P BinaryPointer[T]] struct{}

func (binaryCodec[T, P]) Encode(v T) ([]byte, error) { return P(&v).MarshalBinary() }

func (binaryCodec[T, P]) Decode(data []byte) (v T, err error) {
	err = P(&v).UnmarshalBinary(data)
	return v, err
}

// defaultCodec returns the codec of a type where the options name none, and whether equal values have equal bytes.
func defaultCodec[T any]() (c Codec[T], canonical bool) {
	for _, known := range []any{stringCodec[string]{}, byteCodec{}, intCodec[int]{}, intCodec[int64]{}, intCodec[int32]{}, intCodec[uint64]{}} {
		if c, ok := known.(Codec[T]); ok {
			return c, true
		}
	}
	return jsonCodec[T]{}, false
}
