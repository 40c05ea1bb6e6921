//! What the `nftnl` crate lacks: any expression, sets with flags and elements, named counters.
//!
//! JUSTIFICATION for unsafe: libnftnl is a C library; the crate wraps bare-address sets and some expressions only.
//! Its two public seams are used (`Expression::to_expr`, `NlMsg`). Every call hands over pointers that live for the
//! call; libnftnl copies what it is given, but for the one attribute named below.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::os::raw::c_char;
use std::ptr::NonNull;

use nftnl::expr::Expression;
use nftnl::nftnl_sys::{self as sys, libc};
use nftnl::{Batch, MsgType, NlMsg, ProtoFamily, Rule, Table};

/// Widths of attribute values.
#[derive(Debug)]
enum Value {
    Byte(u8),
    Half(u16),
    Word(u32),
    Long(u64),
    Text(CString),
    Bytes(Vec<u8>),
    /// Bytes that libnftnl keeps and frees instead of copying: the arguments of an xtables target.
    Given(Vec<u8>),
}

/// An expression by its kernel name, with libnftnl's attribute numbers.
#[derive(Debug)]
pub(super) struct Raw {
    name: &'static CStr,
    attrs: Vec<(u32, Value)>,
    /// Attribute number and the expression that stands in it.
    inner: Option<(u32, Box<Raw>)>,
}

impl Raw {
    pub(super) fn new(name: &'static CStr) -> Self {
        Self {
            name,
            attrs: Vec::new(),
            inner: None,
        }
    }

    pub(super) fn byte(mut self, attr: u32, value: u8) -> Self {
        self.attrs.push((attr, Value::Byte(value)));
        self
    }

    pub(super) fn half(mut self, attr: u32, value: u16) -> Self {
        self.attrs.push((attr, Value::Half(value)));
        self
    }

    pub(super) fn word(mut self, attr: u32, value: u32) -> Self {
        self.attrs.push((attr, Value::Word(value)));
        self
    }

    pub(super) fn long(mut self, attr: u32, value: u64) -> Self {
        self.attrs.push((attr, Value::Long(value)));
        self
    }

    pub(super) fn text(mut self, attr: u32, value: &str) -> Self {
        self.attrs.push((attr, Value::Text(c_text(value))));
        self
    }

    pub(super) fn bytes(mut self, attr: u32, value: &[u8]) -> Self {
        self.attrs.push((attr, Value::Bytes(value.to_vec())));
        self
    }

    pub(super) fn given(mut self, attr: u32, value: &[u8]) -> Self {
        self.attrs.push((attr, Value::Given(value.to_vec())));
        self
    }

    pub(super) fn inner(mut self, attr: u32, expr: Self) -> Self {
        self.inner = Some((attr, Box::new(expr)));
        self
    }

    fn alloc(&self) -> NonNull<sys::nftnl_expr> {
        // SAFETY: the name is a NUL-terminated constant of this folder.
        let Some(expr) = NonNull::new(unsafe { sys::nftnl_expr_alloc(self.name.as_ptr()) }) else {
            out_of_memory()
        };
        let to = expr.as_ptr();
        for (attr, value) in &self.attrs {
            let attr = narrow(*attr);
            // SAFETY: the attribute numbers and widths are those of libnftnl's headers for this expression; the data
            // is copied before the call returns, but for `Given`, which is allocated as libnftnl will free it.
            unsafe {
                match value {
                    Value::Byte(v) => sys::nftnl_expr_set_u8(to, attr, *v),
                    Value::Half(v) => sys::nftnl_expr_set_u16(to, attr, *v),
                    Value::Word(v) => sys::nftnl_expr_set_u32(to, attr, *v),
                    Value::Long(v) => sys::nftnl_expr_set_u64(to, attr, *v),
                    Value::Text(v) => {
                        let _ = sys::nftnl_expr_set_str(to, attr, v.as_ptr());
                    }
                    Value::Given(v) => {
                        let Some(copy) = NonNull::new(libc::malloc(v.len())) else {
                            out_of_memory()
                        };
                        copy.as_ptr()
                            .cast::<u8>()
                            .copy_from_nonoverlapping(v.as_ptr(), v.len());
                        let _ = sys::nftnl_expr_set(to, attr, copy.as_ptr(), length(v));
                    }
                    Value::Bytes(v) => {
                        let _ = sys::nftnl_expr_set(to, attr, v.as_ptr().cast(), length(v));
                    }
                }
            }
        }
        if let Some((attr, inner)) = &self.inner {
            // SAFETY: both are live expressions; ownership of the inner one passes to the outer.
            unsafe { sys::nftnl_expr_add_expr(to, *attr, inner.alloc().as_ptr()) };
        }
        expr
    }
}

impl Expression for Raw {
    fn to_expr(&self, _: &Rule<'_>) -> NonNull<sys::nftnl_expr> {
        self.alloc()
    }
}

/// How a set is declared.
#[derive(Debug)]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) id: u32,
    pub(super) flags: u32,
    pub(super) key_type: u32,
    pub(super) key_length: u32,
    /// Size and timeout in milliseconds of a meter.
    pub(super) meter: Option<(u32, u64)>,
    /// nft's note on byte order, so that `nft list` prints keys right.
    pub(super) host_order: bool,
}

/// A set under construction: its declaration, and elements to add or delete.
#[derive(Debug)]
pub(super) struct RawSet {
    set: NonNull<sys::nftnl_set>,
    family: ProtoFamily,
    filled: bool,
}

/// libnftnl's user data type of the key's byte order, and its values.
const UDATA_KEY_BYTEORDER: u8 = 0;
const HOST_ENDIAN: u32 = 1;
const BIG_ENDIAN: u32 = 2;

impl RawSet {
    pub(super) fn new(table: &Table, declaration: &Declaration<'_>) -> Self {
        let set = Self::named(table, declaration.name);
        let to = set.set.as_ptr();
        let order = if declaration.host_order {
            HOST_ENDIAN
        } else {
            BIG_ENDIAN
        };
        // SAFETY: `to` is a live set; numbers are attribute numbers of libnftnl; the user data buffer is copied before
        // it is freed.
        unsafe {
            sys::nftnl_set_set_u32(to, narrow(sys::NFTNL_SET_ID), declaration.id);
            sys::nftnl_set_set_u32(to, narrow(sys::NFTNL_SET_FLAGS), declaration.flags);
            sys::nftnl_set_set_u32(to, narrow(sys::NFTNL_SET_KEY_TYPE), declaration.key_type);
            sys::nftnl_set_set_u32(to, narrow(sys::NFTNL_SET_KEY_LEN), declaration.key_length);
            if let Some((size, timeout)) = declaration.meter {
                sys::nftnl_set_set_u32(to, narrow(sys::NFTNL_SET_DESC_SIZE), size);
                sys::nftnl_set_set_u64(to, narrow(sys::NFTNL_SET_TIMEOUT), timeout);
            }
            let Some(note) = NonNull::new(sys::nftnl_udata_buf_alloc(64)) else {
                out_of_memory()
            };
            sys::nftnl_udata_put_u32(note.as_ptr(), UDATA_KEY_BYTEORDER, order);
            sys::nftnl_set_set_data(
                to,
                narrow(sys::NFTNL_SET_USERDATA),
                sys::nftnl_udata_buf_data(note.as_ptr()),
                sys::nftnl_udata_buf_len(note.as_ptr()),
            );
            sys::nftnl_udata_buf_free(note.as_ptr());
        }
        set
    }

    /// A set that exists already: for adding and deleting elements.
    pub(super) fn named(table: &Table, name: &str) -> Self {
        let name = c_text(name);
        // SAFETY: strings live through the calls and are copied.
        unsafe {
            let Some(set) = NonNull::new(sys::nftnl_set_alloc()) else {
                out_of_memory()
            };
            sys::nftnl_set_set_u32(
                set.as_ptr(),
                narrow(sys::NFTNL_SET_FAMILY),
                table.get_family() as u32,
            );
            sys::nftnl_set_set_str(
                set.as_ptr(),
                narrow(sys::NFTNL_SET_TABLE),
                table.get_name().as_ptr(),
            );
            sys::nftnl_set_set_str(set.as_ptr(), narrow(sys::NFTNL_SET_NAME), name.as_ptr());
            Self {
                set,
                family: table.get_family(),
                filled: false,
            }
        }
    }

    pub(super) fn element(&mut self, key: &[u8]) {
        // SAFETY: the key is copied; ownership of the element passes to the set.
        unsafe {
            let Some(element) = NonNull::new(sys::nftnl_set_elem_alloc()) else {
                out_of_memory()
            };
            sys::nftnl_set_elem_set(
                element.as_ptr(),
                narrow(sys::NFTNL_SET_ELEM_KEY),
                key.as_ptr().cast::<c_void>(),
                length(key),
            );
            sys::nftnl_set_elem_add(self.set.as_ptr(), element.as_ptr());
        }
        self.filled = true;
    }

    /// Messages for all elements, split so that each stays below the 64 KiB limit of a nested attribute.
    pub(super) fn write_elements(&self, batch: &mut Batch, kind: MsgType) {
        if !self.filled {
            return;
        }
        // SAFETY: the iterator belongs to this live set and is destroyed here.
        unsafe {
            let Some(iterator) = NonNull::new(sys::nftnl_set_elems_iter_create(self.set.as_ptr()))
            else {
                out_of_memory()
            };
            while !sys::nftnl_set_elems_iter_cur(iterator.as_ptr()).is_null() {
                let more = Cell::new(0);
                batch.add(
                    &Elements {
                        iterator,
                        family: self.family,
                        more: &more,
                    },
                    kind,
                );
                if more.get() <= 0 {
                    break;
                }
            }
            sys::nftnl_set_elems_iter_destroy(iterator.as_ptr());
        }
    }
}

impl Drop for RawSet {
    fn drop(&mut self) {
        // SAFETY: the set is ours and nothing refers to it any more.
        unsafe { sys::nftnl_set_free(self.set.as_ptr()) }
    }
}

// SAFETY: `buf` is a libnftnl batch page with room for one message, as `NlMsg` promises.
unsafe impl NlMsg for RawSet {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, kind: MsgType) {
        let message = match kind {
            MsgType::Add => libc::NFT_MSG_NEWSET,
            MsgType::Del => libc::NFT_MSG_DELSET,
        };
        // SAFETY: see above; the set is live.
        unsafe {
            let header = build_header(buf, message, self.family, seq);
            sys::nftnl_set_nlmsg_build_payload(header, self.set.as_ptr());
        }
    }
}

struct Elements<'a> {
    iterator: NonNull<sys::nftnl_set_elems_iter>,
    family: ProtoFamily,
    more: &'a Cell<i32>,
}

// SAFETY: as for `RawSet`; the iterator stops before the page is full.
unsafe impl NlMsg for Elements<'_> {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, kind: MsgType) {
        let message = match kind {
            MsgType::Add => libc::NFT_MSG_NEWSETELEM,
            MsgType::Del => libc::NFT_MSG_DELSETELEM,
        };
        // SAFETY: see above.
        unsafe {
            let header = build_header(buf, message, self.family, seq);
            self.more.set(sys::nftnl_set_elems_nlmsg_build_payload_iter(
                header,
                self.iterator.as_ptr(),
            ));
        }
    }
}

/// A named counter.
#[derive(Debug)]
pub(super) struct NamedCounter {
    table: CString,
    name: CString,
    family: ProtoFamily,
}

/// `NFT_MSG_NEWOBJ`, `NFT_MSG_DELOBJ` and `NFT_OBJECT_COUNTER`, which libnftnl's bindings lack.
const NEW_OBJECT: i32 = 18;
const DELETE_OBJECT: i32 = 20;
const OBJECT_COUNTER: u32 = 1;

impl NamedCounter {
    pub(super) fn new(table: &Table, name: &str) -> Self {
        Self {
            table: table.get_name().to_owned(),
            name: c_text(name),
            family: table.get_family(),
        }
    }
}

// SAFETY: as for `RawSet`.
unsafe impl NlMsg for NamedCounter {
    unsafe fn write(&self, buf: *mut c_void, seq: u32, kind: MsgType) {
        let message = match kind {
            MsgType::Add => NEW_OBJECT,
            MsgType::Del => DELETE_OBJECT,
        };
        // SAFETY: the object lives from alloc to free; strings are copied.
        unsafe {
            let header = build_header(buf, message, self.family, seq);
            let Some(object) = NonNull::new(sys::nftnl_obj_alloc()) else {
                out_of_memory()
            };
            let to = object.as_ptr();
            sys::nftnl_obj_set_u32(to, narrow(sys::NFTNL_OBJ_FAMILY), self.family as u32);
            sys::nftnl_obj_set_str(to, narrow(sys::NFTNL_OBJ_TABLE), self.table.as_ptr());
            sys::nftnl_obj_set_str(to, narrow(sys::NFTNL_OBJ_NAME), self.name.as_ptr());
            sys::nftnl_obj_set_u32(to, narrow(sys::NFTNL_OBJ_TYPE), OBJECT_COUNTER);
            sys::nftnl_obj_nlmsg_build_payload(header, to);
            sys::nftnl_obj_free(to);
        }
    }
}

/// SAFETY: `buf` must have room for a message header.
unsafe fn build_header(
    buf: *mut c_void,
    message: i32,
    family: ProtoFamily,
    seq: u32,
) -> *mut libc::nlmsghdr {
    let flags = narrow(u32::try_from(libc::NLM_F_CREATE | libc::NLM_F_ACK).unwrap_or(0));
    let message = u16::try_from(message).unwrap_or(0);
    // SAFETY: promised by the caller.
    unsafe {
        sys::nftnl_nlmsg_build_hdr(buf.cast::<c_char>(), message, family as u16, flags, seq).cast()
    }
}

/// libnftnl's attribute numbers are small; its setters take 16 bits.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

/// Names come from constants and checked interface names; a NUL cannot stand in either.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// What libnftnl's own wrapper does when the C allocator fails: nothing sensible can follow.
fn out_of_memory() -> ! {
    std::process::abort()
}
