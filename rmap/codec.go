package rmap

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A Codec turns values of a type into what the store keeps, and back. Its methods may be called from several goroutines
// at a time, and with a map's mutex held: they must not block, nor use a map. A decoded value must not share memory with
// the data it came from, which may be part of a much larger message.
//
// For keys only the data of the encoded value counts; it must not be empty, and equal keys, and no others, must have
// equal data.
type Codec[T any] interface {
	// Encode returns what is kept of a value.
	Encode(T) (Value, error)
	// Decode returns the value of what was kept.
	Decode(Value) (T, error)
}

// Strings keeps text, or any bytes, as it is. It is the default for string types, as keys and as values.
func Strings[T ~string]() Codec[T] { return stringCodec[T]{} }

type stringCodec[T ~string] struct{}

func (stringCodec[T]) Encode(v T) (Value, error) { return Value{Plain, string(v)}, nil }

func (stringCodec[T]) Decode(v Value) (T, error) {
	if v.Kind != Plain {
		return "", wrongKind(v.Kind, Plain)
	}
	return T(strings.Clone(v.Data)), nil
}

// Bytes keeps bytes as they are. It is the default for []byte.
func Bytes() Codec[[]byte] { return byteCodec{} }

type byteCodec struct{}

func (byteCodec) Encode(v []byte) (Value, error) { return Value{Plain, string(v)}, nil }

func (byteCodec) Decode(v Value) ([]byte, error) {
	if v.Kind != Plain {
		return nil, wrongKind(v.Kind, Plain)
	}
	return []byte(v.Data), nil
}

// A Signed is a type that [Inc] can add to.
type Signed interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64
}

// Ints keeps integers as decimal numbers that the store can add to, see [Inc]. It is the default for signed integer
// types, as keys and as values.
func Ints[T Signed]() Codec[T] { return intCodec[T]{} }

type intCodec[T Signed] struct{}

func (intCodec[T]) Encode(v T) (Value, error) {
	return Value{Integer, strconv.FormatInt(int64(v), 10)}, nil
}

func (intCodec[T]) Decode(v Value) (T, error) {
	if v.Kind != Integer {
		return 0, wrongKind(v.Kind, Integer)
	}
	return decodeInt[T](v.Data)
}

func decodeInt[T Signed](data string) (T, error) {
	n, err := strconv.ParseInt(data, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != data {
		return 0, fmt.Errorf("%w: not an integer", ErrDecode)
	}
	if int64(T(n)) != n {
		return 0, fmt.Errorf("%w: the integer does not fit into %v", ErrDecode, reflect.TypeFor[T]())
	}
	return T(n), nil
}

// JSON keeps values as JSON. It is the default for all types that have no other.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(v T) (Value, error) {
	data, err := json.Marshal(v)
	return Value{Plain, string(data)}, err
}

func (jsonCodec[T]) Decode(v Value) (T, error) {
	var out T
	if v.Kind != Plain {
		return out, wrongKind(v.Kind, Plain)
	}
	err := json.Unmarshal([]byte(v.Data), &out)
	return out, err
}

// A BinaryPointer is a pointer to T that can write and read T in binary, as protocol buffers and many others do.
type BinaryPointer[T any] interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Binary keeps values in the binary form that they define themselves: Binary[url.URL](). It is never a default.
func Binary[T any, P BinaryPointer[T]]() Codec[T] { return binaryCodec[T, P]{} }

type binaryCodec[T any, P BinaryPointer[T]] struct{}

func (binaryCodec[T, P]) Encode(v T) (Value, error) {
	data, err := P(&v).MarshalBinary()
	return Value{Plain, string(data)}, err
}

func (binaryCodec[T, P]) Decode(v Value) (T, error) {
	var out T
	if v.Kind != Plain {
		return out, wrongKind(v.Kind, Plain)
	}
	err := P(&out).UnmarshalBinary([]byte(v.Data))
	return out, err
}

// Lists keeps slices as lists that the store can add items to and remove them from, see [Append]. Items are encoded
// one by one; of their encoding only the data counts. It is the default for []string.
func Lists[E any](items Codec[E]) Codec[[]E] { return listCodec[E]{items} }

type listCodec[E any] struct{ items Codec[E] }

func (c listCodec[E]) Encode(v []E) (Value, error) {
	items, err := c.encodeItems(v)
	return Value{List, EncodeList(items)}, err
}

func (c listCodec[E]) encodeItems(v []E) ([]string, error) {
	items := make([]string, len(v))
	for i, item := range v {
		val, err := c.items.Encode(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		items[i] = val.Data
	}
	return items, nil
}

func (c listCodec[E]) Decode(v Value) ([]E, error) {
	if v.Kind != List {
		return nil, wrongKind(v.Kind, List)
	}
	items, err := DecodeList(v.Data)
	if err != nil {
		return nil, err
	}
	kind := kindOf(c.items)
	out := make([]E, len(items))
	for i, data := range items {
		if out[i], err = c.items.Decode(Value{kind, data}); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	return out, nil
}

// kindOf is what a codec wants to see where only the data is kept: in lists and as keys. One that cannot encode the zero
// value, or panics on it, as on a nil pointer, gets plain data.
func kindOf[T any](c Codec[T]) (kind Kind) {
	defer func() {
		if recover() != nil {
			kind = Plain
		}
	}()
	var zero T
	v, err := c.Encode(zero)
	if err != nil {
		return Plain
	}
	return v.Kind
}

// Raw shows values as the store keeps them, of any kind: for tools that look at maps of all types.
func Raw() Codec[Value] { return rawCodec{} }

type rawCodec struct{}

func (rawCodec) Encode(v Value) (Value, error) {
	var err error
	switch v.Kind {
	case Plain:
	case Integer:
		_, err = decodeInt[int64](v.Data)
	case List:
		_, err = DecodeList(v.Data)
	default:
		err = fmt.Errorf("%w: there is no kind %q", ErrInvalid, v.Kind)
	}
	return v, err
}

func (rawCodec) Decode(v Value) (Value, error) {
	return Value{v.Kind, strings.Clone(v.Data)}, nil
}

func wrongKind(got, want Kind) error {
	return fmt.Errorf("%w: a value of kind %q where the codec writes %q", ErrDecode, got, want)
}

// defaultCodec returns the codec for T where the options name none.
func defaultCodec[T any]() Codec[T] {
	for _, c := range []any{stringCodec[string]{}, byteCodec{}, listCodec[string]{stringCodec[string]{}},
		intCodec[int]{}, intCodec[int64]{}, intCodec[int32]{}, intCodec[int16]{}, intCodec[int8]{}, rawCodec{}} {
		if c, ok := c.(Codec[T]); ok {
			return c
		}
	}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.String, reflect.Int, reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8:
		if !marshals[T]() {
			return namedCodec[T]{}
		}
	}
	return jsonCodec[T]{}
}

// marshals tells whether the type says itself how it wants to be written.
func marshals[T any]() bool {
	p := reflect.TypeFor[*T]()
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// namedCodec is the default for types like `type Flag string` and `type Port int`.
type namedCodec[T any] struct{}

func (namedCodec[T]) Encode(v T) (Value, error) {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.String {
		return stringCodec[string]{}.Encode(r.String())
	}
	return intCodec[int64]{}.Encode(r.Int())
}

func (namedCodec[T]) Decode(v Value) (T, error) {
	var out T
	r := reflect.ValueOf(&out).Elem()
	if r.Kind() == reflect.String {
		s, err := stringCodec[string]{}.Decode(v)
		r.SetString(s)
		return out, err
	}
	n, err := intCodec[int64]{}.Decode(v)
	if err == nil && r.OverflowInt(n) {
		err = fmt.Errorf("%w: the integer does not fit into %v", ErrDecode, r.Type())
	}
	if err != nil {
		return out, err
	}
	r.SetInt(n)
	return out, nil
}

// keyCodec is what a map does with its keys.
type keyCodec[K comparable] struct {
	codec Codec[K]
	kind  Kind
}

func newKeyCodec[K comparable](c Codec[K]) (keyCodec[K], error) {
	if c == nil {
		c = defaultCodec[K]()
		if _, ok := c.(jsonCodec[K]); ok {
			// JSON is not a form of which equal keys have only one.
			return keyCodec[K]{}, fmt.Errorf("%w: keys of type %v need a codec in Options.Keys", ErrInvalid, reflect.TypeFor[K]())
		}
	}
	return keyCodec[K]{codec: c, kind: kindOf(c)}, nil
}

func (c keyCodec[K]) encode(k K) (string, error) {
	v, err := c.codec.Encode(k)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: the key cannot be encoded: %w", ErrInvalid, err)
	case v.Data == "":
		return "", fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(v.Data) > MaxKey:
		return "", fmt.Errorf("%w: the key has %d bytes, the limit is %d", ErrTooLarge, len(v.Data), MaxKey)
	}
	return v.Data, nil
}

func (c keyCodec[K]) decode(data string) (K, error) { return c.codec.Decode(Value{c.kind, data}) }
