package metadata

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/binderylog/bindery/internal/protofield"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/binderylog/bindery/internal/corrupt"
	"github.com/binderylog/bindery/internal/ledger"
)

// Well-known values of a service info.
const (
	EndpointBookie = "bookie"     // endpoint id of the bookie protocol
	ProtocolBookie = "bookie-rpc" // and its protocol
	EndpointHTTP   = "httpserver" // endpoint id of the admin server
	ProtocolHTTP   = "http"

	// PropertyIncarnation and PropertyEpoch say which start of which set of directories published the info. Java ignores
	// them.
	PropertyIncarnation = "bindery.incarnation"
	PropertyEpoch       = "bindery.epoch"
	// PropertyDomain says what fails together with the bookie: "/rack" or "/region/rack".
	PropertyDomain = "bindery.domain"
)

// Endpoint is one address of a bookie.
type Endpoint struct {
	ID         string
	Port       int32
	Host       string
	Protocol   string
	Auth       []string
	Extensions []string
}

// ServiceInfo is what a bookie publishes about itself (BookieServiceInfoFormat).
type ServiceInfo struct {
	Endpoints  []Endpoint
	Properties map[string]string
}

// Address returns host and port of the first endpoint that speaks the bookie protocol. A bookie that published nothing is
// an old one whose id is its address.
func (s *ServiceInfo) Address(id ledger.BookieID) (string, error) {
	for _, e := range s.Endpoints {
		if e.Protocol == ProtocolBookie {
			return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), nil
		}
	}
	if len(s.Endpoints) > 0 {
		return "", fmt.Errorf("bookie %s: publishes no endpoint of protocol %s", id, ProtocolBookie)
	}
	host, port, err := net.SplitHostPort(string(id))
	if err != nil || host == "" {
		return "", fmt.Errorf("bookie %s: publishes no address and its id is none", id)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("bookie %s: publishes no address and its id has no valid port", id)
	}
	return string(id), nil
}

// Incarnation returns the values of PropertyIncarnation and PropertyEpoch.
func (s *ServiceInfo) Incarnation() (incarnation string, epoch uint64, ok bool) {
	incarnation = s.Properties[PropertyIncarnation]
	epoch, err := strconv.ParseUint(s.Properties[PropertyEpoch], 10, 64)
	return incarnation, epoch, incarnation != "" && err == nil
}

// Field numbers of BookieServiceInfoFormat. They start at 6.
const (
	fieldInfoEndpoint = 6
	fieldInfoProperty = 7

	fieldEndpointID       = 1
	fieldEndpointPort     = 2
	fieldEndpointHost     = 3
	fieldEndpointProtocol = 4
	fieldEndpointAuth     = 5
	fieldEndpointExt      = 6
)

// EncodeServiceInfo returns the stored form. Properties are sorted, so equal infos have equal bytes.
func EncodeServiceInfo(s ServiceInfo) []byte {
	var out []byte
	for _, e := range s.Endpoints {
		var m []byte
		m = appendString(m, fieldEndpointID, e.ID)
		m = protowire.AppendTag(m, fieldEndpointPort, protowire.VarintType)
		m = protowire.AppendVarint(m, uint64(int64(e.Port)))
		m = appendString(m, fieldEndpointHost, e.Host)
		m = appendString(m, fieldEndpointProtocol, e.Protocol)
		for _, a := range e.Auth {
			m = appendString(m, fieldEndpointAuth, a)
		}
		for _, x := range e.Extensions {
			m = appendString(m, fieldEndpointExt, x)
		}
		out = protowire.AppendTag(out, fieldInfoEndpoint, protowire.BytesType)
		out = protowire.AppendBytes(out, m)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		var m []byte
		m = appendString(m, 1, k)
		m = appendString(m, 2, s.Properties[k])
		out = protowire.AppendTag(out, fieldInfoProperty, protowire.BytesType)
		out = protowire.AppendBytes(out, m)
	}
	return out
}

// DecodeServiceInfo reads the stored form; empty bytes are an info with nothing in it. key names the record in errors.
func DecodeServiceInfo(key string, b []byte) (ServiceInfo, error) {
	var s ServiceInfo
	err := protofield.Each(b, func(f protofield.Field) error {
		switch {
		case f.IsBytes(fieldInfoEndpoint):
			e, err := decodeEndpoint(f.Bytes)
			if err != nil {
				return err
			}
			s.Endpoints = append(s.Endpoints, e)
		case f.IsBytes(fieldInfoProperty):
			k, v, err := decodeProperty(f.Bytes)
			if err != nil {
				return err
			}
			if s.Properties == nil {
				s.Properties = map[string]string{}
			}
			s.Properties[k] = v
		}
		return nil
	})
	if err != nil {
		return ServiceInfo{}, corrupt.New(key, 0, "bookie service info", err)
	}
	return s, nil
}

func decodeEndpoint(b []byte) (Endpoint, error) {
	var e Endpoint
	var have uint
	err := protofield.Each(b, func(f protofield.Field) error {
		switch {
		case f.IsBytes(fieldEndpointID):
			e.ID, have = string(f.Bytes), have|1
		case f.Is(fieldEndpointPort):
			if f.Int64() < math.MinInt32 || f.Int64() > math.MaxInt32 {
				return fmt.Errorf("port %d", f.Int64())
			}
			e.Port, have = int32(f.Varint), have|2
		case f.IsBytes(fieldEndpointHost):
			e.Host, have = string(f.Bytes), have|4
		case f.IsBytes(fieldEndpointProtocol):
			e.Protocol, have = string(f.Bytes), have|8
		case f.IsBytes(fieldEndpointAuth):
			e.Auth = append(e.Auth, string(f.Bytes))
		case f.IsBytes(fieldEndpointExt):
			e.Extensions = append(e.Extensions, string(f.Bytes))
		default:
			return nil
		}
		if f.Type == protowire.BytesType && !utf8.Valid(f.Bytes) {
			return fmt.Errorf("field %d of an endpoint is not UTF-8", f.Num)
		}
		return nil
	})
	if err == nil && have != 15 {
		err = fmt.Errorf("an endpoint lacks id, port, host or protocol")
	}
	return e, err
}

func decodeProperty(b []byte) (k, v string, err error) {
	err = protofield.Each(b, func(f protofield.Field) error {
		if f.Type != protowire.BytesType {
			return nil
		}
		if !utf8.Valid(f.Bytes) {
			return fmt.Errorf("a property is not UTF-8")
		}
		switch f.Num {
		case 1:
			k = string(f.Bytes)
		case 2:
			v = string(f.Bytes)
		}
		return nil
	})
	return k, v, err
}
