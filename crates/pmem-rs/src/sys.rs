//! All of libpmem, loaded at run time. Generated from its header by `cargo xtask bindgen`.

pub const PMEM_FILE_CREATE: u32 = 1;
pub const PMEM_FILE_EXCL: u32 = 2;
pub const PMEM_FILE_SPARSE: u32 = 4;
pub const PMEM_FILE_TMPFILE: u32 = 8;
pub const PMEM_F_MEM_NODRAIN: u32 = 1;
pub const PMEM_F_MEM_NONTEMPORAL: u32 = 2;
pub const PMEM_F_MEM_TEMPORAL: u32 = 4;
pub const PMEM_F_MEM_WC: u32 = 8;
pub const PMEM_F_MEM_WB: u32 = 16;
pub const PMEM_F_MEM_NOFLUSH: u32 = 32;
pub const PMEM_F_MEM_VALID_FLAGS: u32 = 63;
pub const PMEM_MAJOR_VERSION: u32 = 1;
pub const PMEM_MINOR_VERSION: u32 = 1;
pub type __mode_t = ::std::os::raw::c_uint;
pub type mode_t = __mode_t;
pub type size_t = ::std::os::raw::c_ulong;
extern crate libloading;
pub struct Libpmem {
    __library: ::libloading::Library,
    pub pmem_map_file: Result<
        unsafe extern "C" fn(
            path: *const ::std::os::raw::c_char,
            len: size_t,
            flags: ::std::os::raw::c_int,
            mode: mode_t,
            mapped_lenp: *mut size_t,
            is_pmemp: *mut ::std::os::raw::c_int,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_unmap: Result<
        unsafe extern "C" fn(addr: *mut ::core::ffi::c_void, len: size_t) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub pmem_is_pmem: Result<
        unsafe extern "C" fn(
            addr: *const ::core::ffi::c_void,
            len: size_t,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub pmem_persist: Result<
        unsafe extern "C" fn(addr: *const ::core::ffi::c_void, len: size_t),
        ::libloading::Error,
    >,
    pub pmem_msync: Result<
        unsafe extern "C" fn(
            addr: *const ::core::ffi::c_void,
            len: size_t,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub pmem_has_auto_flush:
        Result<unsafe extern "C" fn() -> ::std::os::raw::c_int, ::libloading::Error>,
    pub pmem_flush: Result<
        unsafe extern "C" fn(addr: *const ::core::ffi::c_void, len: size_t),
        ::libloading::Error,
    >,
    pub pmem_deep_flush: Result<
        unsafe extern "C" fn(addr: *const ::core::ffi::c_void, len: size_t),
        ::libloading::Error,
    >,
    pub pmem_deep_drain: Result<
        unsafe extern "C" fn(
            addr: *const ::core::ffi::c_void,
            len: size_t,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub pmem_deep_persist: Result<
        unsafe extern "C" fn(
            addr: *const ::core::ffi::c_void,
            len: size_t,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub pmem_drain: Result<unsafe extern "C" fn(), ::libloading::Error>,
    pub pmem_has_hw_drain:
        Result<unsafe extern "C" fn() -> ::std::os::raw::c_int, ::libloading::Error>,
    pub pmem_memmove_persist: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memcpy_persist: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memset_persist: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            c: ::std::os::raw::c_int,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memmove_nodrain: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memcpy_nodrain: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memset_nodrain: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            c: ::std::os::raw::c_int,
            len: size_t,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memmove: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
            flags: ::std::os::raw::c_uint,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memcpy: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            src: *const ::core::ffi::c_void,
            len: size_t,
            flags: ::std::os::raw::c_uint,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_memset: Result<
        unsafe extern "C" fn(
            pmemdest: *mut ::core::ffi::c_void,
            c: ::std::os::raw::c_int,
            len: size_t,
            flags: ::std::os::raw::c_uint,
        ) -> *mut ::core::ffi::c_void,
        ::libloading::Error,
    >,
    pub pmem_check_version: Result<
        unsafe extern "C" fn(
            major_required: ::std::os::raw::c_uint,
            minor_required: ::std::os::raw::c_uint,
        ) -> *const ::std::os::raw::c_char,
        ::libloading::Error,
    >,
    pub pmem_errormsg:
        Result<unsafe extern "C" fn() -> *const ::std::os::raw::c_char, ::libloading::Error>,
}
impl Libpmem {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let library = ::libloading::Library::new(path)?;
        Self::from_library(library)
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let pmem_map_file = __library.get(b"pmem_map_file\0").map(|sym| *sym);
        let pmem_unmap = __library.get(b"pmem_unmap\0").map(|sym| *sym);
        let pmem_is_pmem = __library.get(b"pmem_is_pmem\0").map(|sym| *sym);
        let pmem_persist = __library.get(b"pmem_persist\0").map(|sym| *sym);
        let pmem_msync = __library.get(b"pmem_msync\0").map(|sym| *sym);
        let pmem_has_auto_flush = __library.get(b"pmem_has_auto_flush\0").map(|sym| *sym);
        let pmem_flush = __library.get(b"pmem_flush\0").map(|sym| *sym);
        let pmem_deep_flush = __library.get(b"pmem_deep_flush\0").map(|sym| *sym);
        let pmem_deep_drain = __library.get(b"pmem_deep_drain\0").map(|sym| *sym);
        let pmem_deep_persist = __library.get(b"pmem_deep_persist\0").map(|sym| *sym);
        let pmem_drain = __library.get(b"pmem_drain\0").map(|sym| *sym);
        let pmem_has_hw_drain = __library.get(b"pmem_has_hw_drain\0").map(|sym| *sym);
        let pmem_memmove_persist = __library.get(b"pmem_memmove_persist\0").map(|sym| *sym);
        let pmem_memcpy_persist = __library.get(b"pmem_memcpy_persist\0").map(|sym| *sym);
        let pmem_memset_persist = __library.get(b"pmem_memset_persist\0").map(|sym| *sym);
        let pmem_memmove_nodrain = __library.get(b"pmem_memmove_nodrain\0").map(|sym| *sym);
        let pmem_memcpy_nodrain = __library.get(b"pmem_memcpy_nodrain\0").map(|sym| *sym);
        let pmem_memset_nodrain = __library.get(b"pmem_memset_nodrain\0").map(|sym| *sym);
        let pmem_memmove = __library.get(b"pmem_memmove\0").map(|sym| *sym);
        let pmem_memcpy = __library.get(b"pmem_memcpy\0").map(|sym| *sym);
        let pmem_memset = __library.get(b"pmem_memset\0").map(|sym| *sym);
        let pmem_check_version = __library.get(b"pmem_check_version\0").map(|sym| *sym);
        let pmem_errormsg = __library.get(b"pmem_errormsg\0").map(|sym| *sym);
        Ok(Libpmem {
            __library,
            pmem_map_file,
            pmem_unmap,
            pmem_is_pmem,
            pmem_persist,
            pmem_msync,
            pmem_has_auto_flush,
            pmem_flush,
            pmem_deep_flush,
            pmem_deep_drain,
            pmem_deep_persist,
            pmem_drain,
            pmem_has_hw_drain,
            pmem_memmove_persist,
            pmem_memcpy_persist,
            pmem_memset_persist,
            pmem_memmove_nodrain,
            pmem_memcpy_nodrain,
            pmem_memset_nodrain,
            pmem_memmove,
            pmem_memcpy,
            pmem_memset,
            pmem_check_version,
            pmem_errormsg,
        })
    }
    pub unsafe fn pmem_map_file(
        &self,
        path: *const ::std::os::raw::c_char,
        len: size_t,
        flags: ::std::os::raw::c_int,
        mode: mode_t,
        mapped_lenp: *mut size_t,
        is_pmemp: *mut ::std::os::raw::c_int,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_map_file.as_ref().expect("Expected function, got error."))(
            path,
            len,
            flags,
            mode,
            mapped_lenp,
            is_pmemp,
        )
    }
    pub unsafe fn pmem_unmap(
        &self,
        addr: *mut ::core::ffi::c_void,
        len: size_t,
    ) -> ::std::os::raw::c_int {
        (self.pmem_unmap.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_is_pmem(
        &self,
        addr: *const ::core::ffi::c_void,
        len: size_t,
    ) -> ::std::os::raw::c_int {
        (self.pmem_is_pmem.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_persist(&self, addr: *const ::core::ffi::c_void, len: size_t) -> () {
        (self.pmem_persist.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_msync(
        &self,
        addr: *const ::core::ffi::c_void,
        len: size_t,
    ) -> ::std::os::raw::c_int {
        (self.pmem_msync.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_has_auto_flush(&self) -> ::std::os::raw::c_int {
        (self.pmem_has_auto_flush.as_ref().expect("Expected function, got error."))()
    }
    pub unsafe fn pmem_flush(&self, addr: *const ::core::ffi::c_void, len: size_t) -> () {
        (self.pmem_flush.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_deep_flush(&self, addr: *const ::core::ffi::c_void, len: size_t) -> () {
        (self.pmem_deep_flush.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_deep_drain(
        &self,
        addr: *const ::core::ffi::c_void,
        len: size_t,
    ) -> ::std::os::raw::c_int {
        (self.pmem_deep_drain.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_deep_persist(
        &self,
        addr: *const ::core::ffi::c_void,
        len: size_t,
    ) -> ::std::os::raw::c_int {
        (self.pmem_deep_persist.as_ref().expect("Expected function, got error."))(addr, len)
    }
    pub unsafe fn pmem_drain(&self) -> () {
        (self.pmem_drain.as_ref().expect("Expected function, got error."))()
    }
    pub unsafe fn pmem_has_hw_drain(&self) -> ::std::os::raw::c_int {
        (self.pmem_has_hw_drain.as_ref().expect("Expected function, got error."))()
    }
    pub unsafe fn pmem_memmove_persist(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memmove_persist.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len,
        )
    }
    pub unsafe fn pmem_memcpy_persist(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memcpy_persist.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len,
        )
    }
    pub unsafe fn pmem_memset_persist(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        c: ::std::os::raw::c_int,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memset_persist.as_ref().expect("Expected function, got error."))(
            pmemdest, c, len,
        )
    }
    pub unsafe fn pmem_memmove_nodrain(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memmove_nodrain.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len,
        )
    }
    pub unsafe fn pmem_memcpy_nodrain(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memcpy_nodrain.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len,
        )
    }
    pub unsafe fn pmem_memset_nodrain(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        c: ::std::os::raw::c_int,
        len: size_t,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memset_nodrain.as_ref().expect("Expected function, got error."))(
            pmemdest, c, len,
        )
    }
    pub unsafe fn pmem_memmove(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
        flags: ::std::os::raw::c_uint,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memmove.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len, flags,
        )
    }
    pub unsafe fn pmem_memcpy(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        len: size_t,
        flags: ::std::os::raw::c_uint,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memcpy.as_ref().expect("Expected function, got error."))(
            pmemdest, src, len, flags,
        )
    }
    pub unsafe fn pmem_memset(
        &self,
        pmemdest: *mut ::core::ffi::c_void,
        c: ::std::os::raw::c_int,
        len: size_t,
        flags: ::std::os::raw::c_uint,
    ) -> *mut ::core::ffi::c_void {
        (self.pmem_memset.as_ref().expect("Expected function, got error."))(pmemdest, c, len, flags)
    }
    pub unsafe fn pmem_check_version(
        &self,
        major_required: ::std::os::raw::c_uint,
        minor_required: ::std::os::raw::c_uint,
    ) -> *const ::std::os::raw::c_char {
        (self.pmem_check_version.as_ref().expect("Expected function, got error."))(
            major_required,
            minor_required,
        )
    }
    pub unsafe fn pmem_errormsg(&self) -> *const ::std::os::raw::c_char {
        (self.pmem_errormsg.as_ref().expect("Expected function, got error."))()
    }
}
